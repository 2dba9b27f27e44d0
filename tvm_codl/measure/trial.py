"""Candidates on their way through a measurement, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_codl.measure.probe import Probe
from tvm_codl.records.record import ErrorNo


@dataclass(frozen=True)
class Trial:
    """One probe to time; ``predicted_ms`` bounds how long that may take, ``deaths`` is how often a process died with it."""

    probe: Probe
    predicted_ms: float | None = None
    deaths: int = 0

    @property
    def suspect(self) -> bool:
        """It runs last and alone."""
        return self.deaths > 0


@dataclass(frozen=True)
class Result:
    """The times of one trial, or why there are none."""

    trial: Trial
    times_ms: tuple[float, ...] = ()
    failure: ErrorNo = ErrorNo.NO_ERROR
    error: str = ""


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
