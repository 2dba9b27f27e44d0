"""One RPC session of the reference phone, in a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

from tvm_codl.device.cores import CPU_CORES, named
from tvm_codl.device.reference.warm_up import WarmUp

SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl
REAP_S = 5.0  # how long a killed process may take to vanish; inside a broken driver it takes for ever


def start(conn: socket.socket, work: Path, inherited: list[socket.socket]) -> int:
    """Forks a process that serves ``conn`` and ends with it; returns its id.

    ``work`` is the session's folder; ``inherited`` are the server's other sockets, which the session must not hold.
    The caller has one thread, or forking would not be safe.
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
        # SIGSEGV too: TVM's own handler gathers a backtrace, which may take for ever in a process that has crashed.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGSEGV):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        die_with(parent)
        for other in inherited:
            other.close()
        _serve(conn, work)
        status = 0
    except BaseException as error:  # whatever happened, this process must not return into the server's loop
        print(f"session failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        # Exit without destructors: the order in which TVM and an OpenCL driver take themselves down is not defined.
        os._exit(status)


def die_with(parent: int) -> None:
    """Has the kernel kill this process when the thread that forked it ends."""
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


def end(pid: int, work: Path, patience_s: float = REAP_S) -> bool:
    """Kills what is left of a session, its children included, and removes its folder; whether its process has ended.

    Where it has not, it is :func:`reaped` later.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    deadline = time.monotonic() + patience_s
    while not (ended := reaped(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    shutil.rmtree(work, ignore_errors=True)
    return ended


def reaped(pid: int) -> bool:
    """Whether a session's process has ended, now or before."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _serve(conn: socket.socket, work: Path) -> None:
    import tvm

    from tvm_codl.device import facts
    from tvm_codl.runtime import plugin

    if cores := named(CPU_CORES):
        os.sched_setaffinity(0, cores)
    work.mkdir(parents=True)
    os.chdir(work)
    os.environ["TMPDIR"] = str(work)
    plugin.load()

    def path_of(name: str) -> str:
        """Where an uploaded file lies; a name that leads out of the session's folder is refused.

        Of a whole path the last part is meant: AutoTVM's runner removes a library by the path that it has with the client.
        """
        path = (work / (Path(name).name if Path(name).is_absolute() else name)).resolve()
        if not path.is_relative_to(work.resolve()):
            raise ValueError(f"{name!r} is outside the session's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)

    tvm.register_func("tvm.rpc.server.workpath", path_of, override=True)
    tvm.register_func("tvm.rpc.server.load_module", lambda name: tvm.runtime.load_module(path_of(name)), override=True)
    tvm.register_func("codl.warm_up", WarmUp(work), override=True)
    tvm.register_func("codl.profile", lambda: facts.profile().to_json(), override=True)
    tvm.get_global_func("rpc.ServerLoop")(conn.fileno())
