"""Builds in processes of their own: on all cores, and a compiler that crashes takes only its candidate along."""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import os
import shlex
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tvm_codl.build.limits import OverLimits
from tvm_codl.errors import WorkplaceError
from tvm_codl.paths import cache_dir
from tvm_codl.records.record import ErrorNo

Build = Callable[[int], Path]

#: A compiler that finds less room than that, in bytes, may have crashed for it.
LEAST_ROOM = 1 << 24
#: Errors of the operating system that say what this computer has run out of.
SHORT_OF = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN))


@dataclass(frozen=True)
class Outcome:
    """``path`` of what was built, or ``error`` in the builder's own words, and what kind of failure that is.

    ``offenders`` says which of the things that were built together must not be sent, by their place, and why.
    ``workplace`` is what, evidence and next command where this computer, and not what was built, is to blame.
    """

    path: Path | None
    error: str = ""
    failure: ErrorNo = ErrorNo.NO_ERROR
    offenders: Mapping[int, str] = field(default_factory=dict)
    workplace: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class _Running:
    process: multiprocessing.context.ForkProcess
    receiver: multiprocessing.connection.Connection
    until: float
    limit_s: float


def build_all(
    count: int, build: Build, workers: int = 0, limit_s: float | Callable[[int], float] = 600.0
) -> Iterator[tuple[int, Outcome]]:
    """Runs ``build(i)`` for ``i < count`` in forked processes, ``workers`` at a time, and yields as they end.

    Forked, so that the network and its weights need not be sent.  A build that takes longer than ``limit_s`` seconds
    (one number for all, or by index) is ended and counts as failed.

    Raises :class:`WorkplaceError` where a compiler or room on a disk is missing: nothing that is built would succeed.
    """
    workers = workers or len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("fork")
    waiting = list(range(count))
    running: dict[int, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                index = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_there, args=(build, index, sender), daemon=True)
                process.start()
                assert process.pid is not None
                with contextlib.suppress(OSError):  # it has done so itself, or has ended
                    os.setpgid(process.pid, process.pid)
                sender.close()
                limit = limit_s(index) if callable(limit_s) else limit_s
                running[index] = _Running(process, receiver, time.monotonic() + limit, limit)
            patience = max(0.0, min(r.until for r in running.values()) - time.monotonic())
            ready = multiprocessing.connection.wait([r.receiver for r in running.values()], timeout=patience)
            for index, one in list(running.items()):
                late = time.monotonic() >= one.until
                if one.receiver not in ready and not late:
                    continue
                outcome = _outcome(one.receiver if one.receiver in ready else None, one.limit_s)
                if outcome.workplace is not None:
                    raise WorkplaceError(*outcome.workplace)
                yield index, outcome
                _end(one.process)
                one.receiver.close()
                del running[index]
    finally:
        for one in running.values():
            _end(one.process)


def _end(process: multiprocessing.context.ForkProcess) -> None:
    """Kills a build with the compilers and linkers that it has started: inside native code nobody hears a milder signal."""
    assert process.pid is not None  # 0 would be this process's own group
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _outcome(receiver: multiprocessing.connection.Connection | None, limit_s: float) -> Outcome:
    if receiver is None:
        return Outcome(None, f"the build took longer than {limit_s:g} s", ErrorNo.BUILD_TIMEOUT)
    try:
        return Outcome(*receiver.recv())
    except EOFError:
        places = {str(place): shutil.disk_usage(place).free for place in (tempfile.gettempdir(), cache_dir())}
        full = [place for place, free in places.items() if free < LEAST_ROOM]
        lacking = (
            ("the compiler ended", f"no room in {' and '.join(full)}", f"df -h {' '.join(full)}") if full else None
        )
        return Outcome(None, "the compiler crashed", ErrorNo.COMPILE_HOST, workplace=lacking)


def _here(build: Build, index: int) -> Outcome:
    try:
        return Outcome(build(index))
    except OverLimits as error:
        return Outcome(None, str(error), ErrorNo.INSTANTIATION_ERROR, error.offenders)
    except WorkplaceError as error:
        return Outcome(None, error.what, ErrorNo.COMPILE_HOST, workplace=(error.what, error.evidence, error.next))
    except OSError as error:
        if error.errno not in SHORT_OF:
            return Outcome(None, last_line(error), ErrorNo.COMPILE_HOST)
        space = f"df -h {shlex.quote(str(cache_dir()))} {shlex.quote(tempfile.gettempdir())}; free -m; ulimit -a"
        return Outcome(
            None, str(error), ErrorNo.COMPILE_HOST, workplace=("nothing can be built here", str(error), space)
        )
    except Exception as error:  # a compiler raises whatever it likes; it is the candidate that failed
        return Outcome(None, last_line(error), ErrorNo.COMPILE_HOST)


def _there(build: Build, index: int, sender: multiprocessing.connection.Connection) -> None:
    os.setpgid(0, 0)
    # What the parent holds of a phone is not for this process to release: it would say so on the parent's connection.
    gc.freeze()
    outcome = _here(build, index)
    try:
        sender.send((outcome.path, outcome.error, outcome.failure, dict(outcome.offenders), outcome.workplace))
    except (OSError, ValueError):
        traceback.print_exc()


def last_line(error: BaseException) -> str:
    """An exception in one line: TVM's carry a whole stack before what matters."""
    lines = [x.strip() for x in str(error).splitlines() if x.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"[:300]


def chunks(items: Sequence[object], size: int, workers: int) -> list[tuple[int, int]]:
    """Ranges of ``items``: even, no larger than ``size``, and enough of them for every worker."""
    count = max(-(-len(items) // size), min(workers, -(-len(items) // 8)), 1)
    return [(len(items) * i // count, len(items) * (i + 1) // count) for i in range(count)]
