"""The reference phone's server process: ``python -m tvm_codl.device.reference.server``, started by :mod:`tvm_codl.device.reference.serve`.

It waits for clients with one thread and serves each in a process of its own, one after the other as a phone does: two
at once would measure each other.  A session that crashes leaves it waiting for the next.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from pathlib import Path

from tvm_codl.device.link import notice_silence
from tvm_codl.device.reference import session
from tvm_codl.device.reference.listener import Front, Listening, Proxied, Wait, say, select_wait
from tvm_codl.device.reference.serve import address, parser

WATCH_S = 0.5  # how long the server may outlive the process it belongs to
GONE_S = 2.0  # how long a session may outlive its client


class Stop(Exception):
    """A signal asked the server to end, or the process it belongs to has ended."""


def main(arguments: list[str]) -> None:
    options = parser(argparse.ArgumentParser(prog="tvm_codl.device.reference.server")).parse_args(arguments)
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    remove_stale(Path(tempfile.gettempdir()))
    work = Path(options.work_dir or tempfile.mkdtemp(prefix=f"tvm-codl-{os.getpid()}-"))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        front = _front(options)
        serve(front, work, options.parent)
    except Stop:
        pass
    finally:
        # A parent that is still there reads the log in the folder that it gave, and removes it itself.
        if not options.work_dir or os.getppid() != options.parent:
            shutil.rmtree(work, ignore_errors=True)


def _stop(number: int, frame: object) -> None:
    raise Stop


def _front(options: argparse.Namespace) -> Front:
    from tvm_codl.runtime import plugin

    plugin.load()  # here, so that a session starts without it and a plugin that is broken shows at once
    about: dict[str, object] = {"key": options.key}
    front: Front
    if options.proxy:
        front = Proxied(address(options.proxy), options.key)
        about["proxy"] = options.proxy
    else:
        listener = _listen(options.host, options.port, options.port_end)
        front = Listening(listener, options.key, address(options.tracker) if options.tracker else None)
        about |= {"host": options.host, "port": front.port, "tracker": options.tracker}
    print(json.dumps(about), flush=True)
    say("serving " + " ".join(f"{name}={value}" for name, value in about.items() if value))
    return front


def _listen(host: str, port: int, port_end: int) -> socket.socket:
    for candidate in [port, *range(port + 1, port_end)] if port else [0]:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(16)
            return listener
        except OSError as error:
            listener.close()
            last = error
    print(json.dumps({"error": f"cannot listen on {host}, ports {port} to {port_end}: {last}"}), flush=True)
    sys.exit(3)


def serve(front: Front, work: Path, parent: int | None) -> None:
    """Serves one client after the other until :class:`Stop`.  With ``parent``, stops when that process has ended."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    wait = _watching(select_wait(reader), reader, parent)
    count, left_behind = 0, set[int]()
    while True:
        conn, peer, limit = front.next_client(wait)
        count += 1
        folder = work / f"session-{os.getpid()}-{count}"  # another server may have left some in the same folder
        say(f"session {count} from {peer}" + (f", at most {limit:g} s" if limit else ""))
        notice_silence(conn)
        pid = session.start(conn, folder, front.sockets())
        try:
            say(f"session {count} {_outcome(pid, conn, wait, limit)}")
        finally:
            conn.close()
            if not session.end(pid, folder):
                say(f"process {pid} does not die: a driver holds it. It is left behind")
                left_behind.add(pid)
            left_behind = {one for one in left_behind if not session.reaped(one)}


def _watching(wait: Wait, reader: int, parent: int | None) -> Wait:
    """``wait`` in slices, between which the server looks after the process that it belongs to."""

    def watched(sockets: list[socket.socket], seconds: float) -> list[socket.socket]:
        deadline = time.monotonic() + seconds
        while True:
            if parent is not None and os.getppid() != parent:
                say("the process that this phone belongs to has ended")
                raise Stop
            ready = wait(sockets, max(0.0, min(WATCH_S, deadline - time.monotonic())))
            woken = _drain(reader)
            if ready or woken or time.monotonic() >= deadline:
                return ready

    return watched


def _drain(reader: int) -> bool:
    try:
        return bool(os.read(reader, 512))
    except BlockingIOError:
        return False


def _outcome(pid: int, conn: socket.socket, wait: Wait, limit: float | None) -> str:
    """How a session ended; kills it at its time limit, and where its client has left it in a kernel that never ends."""
    left = select.poll()
    left.register(conn, select.POLLRDHUP)
    deadline = time.monotonic() + limit if limit else math.inf
    gone_at = math.inf
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        now = time.monotonic()
        if gone_at == math.inf and left.poll(0):
            gone_at = now
        if now > deadline or now > gone_at + GONE_S:
            os.kill(pid, signal.SIGKILL)
            # For one that does not die, which holds the connection too.
            with contextlib.suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)
            return "was killed at its time limit" if now > deadline else "was killed: its client had gone"
        wait([], max(0.01, min(WATCH_S, deadline - now)))
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"crashed: {signal.Signals(-code).name}"
    return "ended" if code == 0 else f"failed with exit code {code}"


def remove_stale(folder: Path) -> None:
    """Removes what a server that was killed outright left behind."""
    for left in folder.glob("tvm-codl-*-*"):
        owner = left.name.split("-")[2]
        with contextlib.suppress(OSError):  # another server, starting too, was faster
            about = left.lstat()
            own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
            if own and owner.isdigit() and not Path("/proc", owner).exists():
                shutil.rmtree(left, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
