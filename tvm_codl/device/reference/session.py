"""One RPC session of the reference phone, in a process of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tvm_codl.device.cores import CPU_CORES, cores_from_env
from tvm_codl.device.ending import Ending
from tvm_codl.device.reference.parent import die_with_parent
from tvm_codl.device.reference.session_log import SessionLog

REAP_S = 5.0  # how long a killed process may take to end; inside a broken driver it never does


def start(
    conn: socket.socket, work: Path, inherited: list[socket.socket], words: SessionLog, endings: Mapping[str, Ending]
) -> int:
    """Forks a process that serves ``conn`` and ends with it; returns its id.

    ``work`` is the session's folder, whose name is the session's; ``inherited`` are the server's other sockets, which the
    session closes; ``words`` takes its stderr.  ``endings``, by session, are what it tells its client of earlier ones.  The
    caller must have one thread only: forking is not safe otherwise.
    """
    parent = os.getpid()
    child = os.fork()
    if child:
        with contextlib.suppress(OSError):  # it has done so itself, or has ended
            os.setpgid(child, child)
        return child
    status = 1
    try:
        os.setpgid(0, 0)
        # SIGSEGV too: TVM's own handler collects a backtrace, which may hang in a crashed process.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGSEGV):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        words.close()
        os.dup2(words.writer, sys.stderr.fileno())
        words.close_writer()
        faulthandler.enable()  # a crash names its thread, and kills as before
        die_with_parent(parent)
        for other in inherited:
            other.close()
        _serve(conn, work, endings)
        status = 0
    except BaseException as error:  # whatever happened, this process must not return into the server's loop
        print(f"session failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        # Exit without destructors: TVM's and an OpenCL driver's run in no defined order.
        os._exit(status)


def end(pid: int, work: Path, patience_s: float = REAP_S) -> bool:
    """Kills a session's process and its children, and removes its folder.  False if the process does not end in time."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    deadline = time.monotonic() + patience_s
    while not (ended := has_ended(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    shutil.rmtree(work, ignore_errors=True)
    return ended


def has_ended(pid: int) -> bool:
    """Whether a session's process has ended; reaps it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _serve(conn: socket.socket, work: Path, endings: Mapping[str, Ending]) -> None:
    import tvm

    from tvm_codl.device import facts
    from tvm_codl.device.reference.warm_up import WarmUp
    from tvm_codl.runtime import plugin

    if cores := cores_from_env(CPU_CORES):
        os.sched_setaffinity(0, cores)
    work.mkdir(parents=True)
    os.chdir(work)
    os.environ["TMPDIR"] = str(work)
    plugin.load()
    warm_up = WarmUp(work, conn)

    def path_of(name: str) -> str:
        """The path of an uploaded file; a name that leads out of the session's folder is refused.

        Of an absolute path only the last part counts: AutoTVM's runner removes a library by the client's path of it.
        """
        path = (work / (Path(name).name if Path(name).is_absolute() else name)).resolve()
        if not path.is_relative_to(work.resolve()):
            raise ValueError(f"{name!r} is outside the session's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)

    tvm.register_func("tvm.rpc.server.workpath", path_of, override=True)
    tvm.register_func("tvm.rpc.server.load_module", lambda name: tvm.runtime.load_module(path_of(name)), override=True)

    def ending(name: str) -> str:
        """As JSON, how an earlier session ended; empty where it ended well, or is not known."""
        return msgspec.json.encode(endings[name]).decode() if name in endings else ""

    tvm.register_func("codl.session", lambda: work.name, override=True)
    tvm.register_func("codl.ending", ending, override=True)
    tvm.register_func("codl.warm_up", warm_up.functions, override=True)
    tvm.register_func("codl.compile_kernels", warm_up.library, override=True)
    tvm.register_func("codl.profile", lambda: facts.profile().to_json(), override=True)
    tvm.get_global_func("rpc.ServerLoop")(conn.fileno())
