"""Builds in processes of their own: on all cores, and a compiler that crashes takes only its candidate along."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Build = Callable[[int], Path]


class Outcome:
    """``path`` of what was built, or ``error`` in the builder's own words."""

    def __init__(self, path: Path | None, error: str) -> None:
        self.path, self.error = path, error


@dataclass(frozen=True)
class _Running:
    process: multiprocessing.context.ForkProcess
    receiver: multiprocessing.connection.Connection
    until: float


def build_all(count: int, build: Build, workers: int = 0, limit_s: float = 600.0) -> Iterator[tuple[int, Outcome]]:
    """Runs ``build(i)`` for ``i < count`` in forked processes, ``workers`` at a time, and yields as they end.

    Forked, so that the network and its weights need not be sent.  A build that takes longer than ``limit_s`` seconds is
    ended and counts as failed.
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
                sender.close()
                running[index] = _Running(process, receiver, time.monotonic() + limit_s)
            patience = max(0.0, min(r.until for r in running.values()) - time.monotonic())
            ready = multiprocessing.connection.wait([r.receiver for r in running.values()], timeout=patience)
            for index, one in list(running.items()):
                late = time.monotonic() >= one.until
                if one.receiver not in ready and not late:
                    continue
                yield index, _outcome(one.receiver if one.receiver in ready else None, limit_s)
                one.process.terminate()
                one.process.join()
                one.receiver.close()
                del running[index]
    finally:
        for one in running.values():
            one.process.terminate()
            one.process.join()


def _outcome(receiver: multiprocessing.connection.Connection | None, limit_s: float) -> Outcome:
    if receiver is None:
        return Outcome(None, f"the build took longer than {limit_s:g} s")
    try:
        path, error = receiver.recv()
        return Outcome(path, error)
    except EOFError:
        return Outcome(None, "the compiler crashed")


def _here(build: Build, index: int) -> Outcome:
    try:
        return Outcome(build(index), "")
    except Exception as error:  # a compiler raises whatever it likes; it is the candidate that failed
        return Outcome(None, last_line(error))


def _there(build: Build, index: int, sender: multiprocessing.connection.Connection) -> None:
    outcome = _here(build, index)
    try:
        sender.send((outcome.path, outcome.error))
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
