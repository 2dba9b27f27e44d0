"""Builds in separate processes, on all cores: a compiler crash loses only its own candidate."""

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
from typing import TypeVar

from tvm_codl.build.limits import OverLimits
from tvm_codl.errors import WorkplaceError
from tvm_codl.paths import cache_dir
from tvm_codl.records.record import ErrorNo
from tvm_codl.runtime.error_text import last_line

Build = Callable[[int], Path]
T = TypeVar("T")

#: With fewer bytes free, a full disk may explain a compiler's crash.
LEAST_ROOM = 1 << 24
#: Errors of the operating system for resources that this computer has run out of.
SHORT_OF = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN))


@dataclass(frozen=True)
class Outcome:
    """``path`` of the result, or ``error`` in the builder's own words and the kind of ``failure``.

    ``offenders`` are the parts, by index, that must not be sent, and why.  ``workplace`` is what, evidence and next command
    where this computer is to blame.
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


#: Times that a folder of temporary files is tried to be removed: within a second.
REMOVALS = 20


def build_all(
    count: int,
    build: Build,
    workers: int = 0,
    limit_s: float | Callable[[int], float] = 600.0,
    meanwhile: Callable[[], object] | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """Runs ``build(i)`` for ``i < count`` in forked processes, ``workers`` at a time, and yields as they end.

    Forking avoids sending the network and its weights.  A build that exceeds ``limit_s`` seconds (one number for all, or by
    index) is killed and counts as failed.  ``meanwhile`` is called here once the first builds have begun.

    Raises :class:`WorkplaceError` where a compiler or disk space is missing: every build would fail.
    """
    workers = workers or len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("fork")
    waiting = list(range(count))
    running: dict[int, _Running] = {}
    # A build that is killed leaves its temporary files.
    folder = tempfile.mkdtemp(prefix="tvm-codl-build-")
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                index = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_build_in_child, args=(build, index, sender, folder), daemon=True)
                with _no_collection():
                    process.start()
                assert process.pid is not None
                with contextlib.suppress(OSError):  # the child has done so already, or has ended
                    os.setpgid(process.pid, process.pid)
                sender.close()
                limit = limit_s(index) if callable(limit_s) else limit_s
                running[index] = _Running(process, receiver, time.monotonic() + limit, limit)
            if meanwhile is not None:
                meanwhile()
                meanwhile = None
            patience = max(0.0, min(r.until for r in running.values()) - time.monotonic())
            ready = multiprocessing.connection.wait([r.receiver for r in running.values()], timeout=patience)
            for index, job in list(running.items()):
                late = time.monotonic() >= job.until
                if job.receiver not in ready and not late:
                    continue
                outcome = _receive(job.receiver if job.receiver in ready else None, job.limit_s)
                if outcome.workplace is not None:
                    raise WorkplaceError(*outcome.workplace)
                yield index, outcome
                _kill(job.process)
                job.receiver.close()
                del running[index]
    finally:
        for job in running.values():
            _kill(job.process)
        _remove(folder)


def _remove(folder: str) -> None:
    """A compiler that was killed may write until it is gone: the folder is not empty then, and is removed again."""
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.05)


def _kill(process: multiprocessing.context.ForkProcess) -> None:
    """Kills a build with its compilers and linkers; native code ignores milder signals."""
    assert process.pid is not None  # 0 would be this process's own group
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _receive(receiver: multiprocessing.connection.Connection | None, limit_s: float) -> Outcome:
    if receiver is None:
        return Outcome(None, f"the build took longer than {limit_s:g} s", ErrorNo.BUILD_TIMEOUT)
    try:
        return receiver.recv()
    except EOFError:
        places = {str(place): shutil.disk_usage(place).free for place in (tempfile.gettempdir(), cache_dir())}
        full = [place for place, free in places.items() if free < LEAST_ROOM]
        lacking = ("the compiler ended", f"no room in {' and '.join(full)}", f"df -h {' '.join(full)}")
        return Outcome(None, "the compiler crashed", ErrorNo.COMPILE_HOST, workplace=lacking if full else None)


def _try_build(build: Build, index: int) -> Outcome:
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
        lacking = ("nothing can be built here", str(error), space)
        return Outcome(None, str(error), ErrorNo.COMPILE_HOST, workplace=lacking)
    except Exception as error:  # compilers raise errors of any kind; the candidate failed
        return Outcome(None, last_line(error), ErrorNo.COMPILE_HOST)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Children that start here never look for garbage.

    What they found of the parent's would be released on the phone, by the parent's connection, and once more by the parent.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _build_in_child(build: Build, index: int, sender: multiprocessing.connection.Connection, folder: str) -> None:
    os.setpgid(0, 0)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    gc.freeze()  # for whoever collects explicitly
    try:
        sender.send(_try_build(build, index))
    except (OSError, ValueError):
        traceback.print_exc()


def deal(items: Sequence[T], size: int, workers: int) -> list[list[T]]:
    """Parts of ``items``, even and no larger than ``size``, and enough for every worker.

    Dealt in turn, so that parts take about as long where the items that take the longest are next to each other.
    """
    count = max(-(-len(items) // size), min(workers, -(-len(items) // 8)))
    return [list(items[number::count]) for number in range(count)]
