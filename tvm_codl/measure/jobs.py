"""Libraries of trials on their way to a phone, and the events that come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_codl.measure.trial import Result, Trial
from tvm_codl.measure.worker import Numbered, Unloadable, Worker
from tvm_codl.records.record import ErrorNo


@dataclass(frozen=True)
class Job:
    """Region ``i`` of the library at ``path`` is ``trials[i]``."""

    path: Path
    trials: Sequence[Trial]


@dataclass(frozen=True)
class Refused:
    """A phone could not load the library of these trials; build it again in smaller parts."""

    trials: Sequence[Trial]
    failure: ErrorNo
    words: str


Event = Result | Refused


def one_phone(jobs: Sequence[Job], worker: Worker) -> Iterator[Event]:
    """All jobs on one phone, one after the other.  Raises :class:`DeviceError` where it goes away for good."""
    for job in jobs:
        yield from measure_job(worker, list(enumerate(job.trials)), job.path)


def measure_job(worker: Worker, trials: Sequence[Numbered], path: Path) -> Iterator[Event]:
    """:meth:`Worker.measure`, where a library that cannot be loaded is an event too."""
    left = dict(trials)
    number = {trial: region for region, trial in trials}
    try:
        for result in worker.measure(trials, path):
            left.pop(number[result.trial], None)
            yield result
    except Unloadable as error:
        if left:
            yield Refused(list(left.values()), error.failure, error.words)
