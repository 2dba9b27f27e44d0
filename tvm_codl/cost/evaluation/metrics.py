"""Metrics: how good predictions are on held-out samples."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.cost.learned import deviations
from tvm_codl.errors import CheckFailed

Floats = NDArray[np.float64]


class Metrics(msgspec.Struct, frozen=True):
    """Of ``n`` predictions: the share within 5, 10 and 20 % of the measured time, and relative errors.

    An error is ``abs(predicted - measured) / measured``.  ``coverage_P`` is the share of measured times that lie within
    the stated uncertainty's central interval of P %; None where no uncertainty was stated.
    """

    n: int
    within_5: float
    within_10: float
    within_20: float
    median_error: float
    p90_error: float
    coverage_50: float | None = None
    coverage_80: float | None = None
    coverage_90: float | None = None


class Result(msgspec.Struct, frozen=True):
    """Of one learner, on operators of one class (``all`` for all of them) on one device or processor of it."""

    device: str
    op_class: str
    learner: str
    metrics: Metrics


class Scatter(msgspec.Struct, frozen=True):
    """Held-out operators one by one, for a picture: milliseconds, ``predicted_ms`` by learner, the best one first."""

    device: str
    measured_ms: list[float]
    predicted_ms: dict[str, list[float]]


def metrics(measured_ms: Floats, predicted_ms: Floats, sigma: Floats | None = None) -> Metrics:
    """All arguments have shape (samples,); ``sigma`` is the stated deviation of log-time.

    Raises :class:`CheckFailed` for no samples, and for a time that is not finite and positive: a prediction that is no
    number must not pass for a bad one.
    """
    if len(measured_ms) == 0 or len(measured_ms) != len(predicted_ms):
        raise CheckFailed("nothing to compare", f"{len(measured_ms)} measured, {len(predicted_ms)} predicted times")
    for name, times in (("measured", measured_ms), ("predicted", predicted_ms)):
        wrong = np.flatnonzero(~(np.isfinite(times) & (times > 0)))
        if len(wrong):
            raise CheckFailed(f"a {name} time is no time", f"{times[wrong[0]]} ms at {int(wrong[0])}")
    error = np.abs(predicted_ms / measured_ms - 1.0)
    within = [float(np.mean(error <= limit)) for limit in (0.05, 0.1, 0.2)]
    result = Metrics(
        len(error), within[0], within[1], within[2], float(np.median(error)), float(np.quantile(error, 0.9))
    )
    if sigma is None:
        return result
    distance = np.abs(np.log(predicted_ms / measured_ms))
    inside = {f"coverage_{p}": float(np.mean(distance <= deviations(p / 100) * sigma)) for p in (50, 80, 90)}
    return msgspec.structs.replace(result, **inside)
