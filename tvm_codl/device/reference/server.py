"""The reference phone's server process: ``python -m tvm_codl.device.reference.server``, started by :mod:`.serve`.

One thread waits for clients and serves each in a process of its own, one after the other: two at once would disturb each
other's measurements.  After a session that crashes it waits for the next.
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
from typing import Any

from tvm_codl.device.ending import Ending
from tvm_codl.device.reference import session
from tvm_codl.device.reference.listener import DirectListener, Listener, ProxyListener, Wait, log
from tvm_codl.device.reference.serve import add_options, parse_address
from tvm_codl.device.reference.session_log import SessionLog
from tvm_codl.device.session_socket import enable_keepalive

WATCH_S = 0.5  # how long the server may outlive the process it belongs to
GONE_S = 2.0  # how long a session may outlive its client
ENDINGS = 32  # sessions whose bad end is remembered for their clients


ENDED = "ended"  # of a session's end in good order


class Stop(Exception):
    """A signal asked the server to end, or the process it belongs to has ended."""


def main(arguments: list[str]) -> None:
    options = add_options(argparse.ArgumentParser(prog="tvm_codl.device.reference.server")).parse_args(arguments)
    remove_stale(Path(tempfile.gettempdir()))
    work = Path(options.work_dir or tempfile.mkdtemp(prefix=f"tvm-codl-{os.getpid()}-"))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        serve(_make_listener(options), work, options.parent)
    except Stop:
        pass
    finally:
        # A living parent reads the log in the folder that it gave, and removes it itself.
        if not options.work_dir or os.getppid() != options.parent:
            shutil.rmtree(work, ignore_errors=True)


def _stop(number: int, frame: object) -> None:
    raise Stop


def _make_listener(options: argparse.Namespace) -> Listener:
    from tvm_codl.runtime import plugin

    plugin.load()  # sessions inherit it, and a broken plugin shows at once
    about: dict[str, object] = {"key": options.key}
    listener: Listener
    if options.proxy:
        listener = ProxyListener(parse_address(options.proxy), options.key)
        about["proxy"] = options.proxy
    else:
        tracker = parse_address(options.tracker) if options.tracker else None
        listener = DirectListener(_listen(options.host, options.port, options.port_end), options.key, tracker)
        about |= {"host": options.host, "port": listener.port, "tracker": options.tracker}
    print(json.dumps(about), flush=True)
    log("serving " + " ".join(f"{name}={value}" for name, value in about.items() if value))
    return listener


def _listen(host: str, port: int, port_end: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in [port, *range(port + 1, port_end)] if port else [0]:
        try:
            return socket.create_server((host, candidate), family=family, backlog=16)
        except OSError as error:
            last = error
    print(json.dumps({"error": f"cannot listen on {host}, ports {port} to {port_end}: {last}"}), flush=True)
    sys.exit(3)


def serve(listener: Listener, work: Path, parent: int | None) -> None:
    """Serves one client after the other until :class:`Stop`.  With ``parent``, stops when that process has ended."""
    wait = _make_wait(parent)
    count, undead, endings = 0, set[int](), dict[str, Ending]()
    while True:
        conn, peer, limit = listener.next_client(wait)
        count += 1
        folder = work / f"session-{os.getpid()}-{count}"  # another server may have left some in the same folder
        log(f"session {count} from {peer}" + (f", at most {limit:g} s" if limit else ""))
        enable_keepalive(conn)
        words = SessionLog()
        pid = session.start(conn, folder, listener.sockets(), words, endings)
        words.close_writer()
        try:
            how = _await_end(pid, conn, wait, limit, words)
            log(f"session {count} {how}")
            if how != ENDED:
                endings[folder.name] = Ending(how.replace("crashed: ", "ended by "), words.last_lines)
                for old in list(endings)[:-ENDINGS]:
                    del endings[old]
        finally:
            words.close()
            conn.close()
            if not session.end(pid, folder):
                log(f"process {pid} does not die: a driver holds it. It is left behind")
                undead.add(pid)
            undead = {pid for pid in undead if not session.has_ended(pid)}


def _make_wait(parent: int | None) -> Wait:
    """A :data:`Wait` that also returns on a signal, and checks every ``WATCH_S`` that ``parent`` is alive."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def wait(sockets: list[Any], seconds: float) -> list[Any]:
        deadline = time.monotonic() + seconds
        while True:
            if parent is not None and os.getppid() != parent:
                log("the process that this phone belongs to has ended")
                raise Stop
            timeout = max(0.0, min(WATCH_S, deadline - time.monotonic()))
            ready = select.select([*sockets, reader], [], [], timeout)[0]
            if reader in ready:
                os.read(reader, 512)
            if ready or time.monotonic() >= deadline:
                return [conn for conn in sockets if conn in ready]

    return wait


def _await_end(pid: int, conn: socket.socket, wait: Wait, limit: float | None, words: SessionLog) -> str:
    """Waits for a session's end and describes it.  Kills it at its time limit, and after its client has left."""
    hangup = select.poll()
    hangup.register(conn, select.POLLRDHUP)
    deadline = time.monotonic() + limit if limit else math.inf
    gone_at = math.inf
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        words.read()  # after it: all that the session wrote has come
        if done:
            break
        now = time.monotonic()
        if gone_at == math.inf and hangup.poll(0):
            gone_at = now
        if now > deadline or now > gone_at + GONE_S:
            os.kill(pid, signal.SIGKILL)
            # A process that does not die holds the connection, too.
            with contextlib.suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)
            return "was killed at its time limit" if now > deadline else "was killed: its client had gone"
        wait([] if words.ended else [words], max(0.01, min(WATCH_S, deadline - now)))
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"crashed: {signal.Signals(-code).name}"
    return ENDED if code == 0 else f"failed with exit code {code}"


def remove_stale(folder: Path) -> None:
    """Removes the folders of servers that were killed."""
    for path in folder.glob("tvm-codl-*-*"):
        owner = path.name.split("-")[2]
        with contextlib.suppress(OSError):  # another server, starting too, was faster
            about = path.lstat()
            own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
            if own and owner.isdigit() and not Path("/proc", owner).exists():
                shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
