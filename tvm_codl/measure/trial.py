"""A candidate on its way through a measurement, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

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
