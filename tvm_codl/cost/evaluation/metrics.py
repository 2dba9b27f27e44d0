"""Evaluation: how good predictions are on what was held out, and how to hold out.

A shape is held out whole: samples of one group (equal operators of several networks, pieces of one operator) lie all
on one side, or a test would ask for what the training has seen.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.errors import CheckFailed, UserError

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


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
    found = Metrics(
        len(error), within[0], within[1], within[2], float(np.median(error)), float(np.quantile(error, 0.9))
    )
    if sigma is None:
        return found
    distance = np.abs(np.log(predicted_ms / measured_ms))
    inside = {f"coverage_{p}": float(np.mean(distance <= deviations(p / 100) * sigma)) for p in (50, 80, 90)}
    return msgspec.structs.replace(found, **inside)


def deviations(share: float) -> float:
    """Half the width of a normal distribution's central interval that holds ``share`` of it, in deviations."""
    return NormalDist().inv_cdf((1.0 + share) / 2.0)


def pooled(parts: Sequence[Metrics]) -> Metrics:
    """The mean of each figure over several hold-outs (seeds, folds), and the sum of ``n``.

    Raises :class:`CheckFailed` for no parts.
    """
    if not parts:
        raise CheckFailed("no evaluation to take the mean of")
    names = [name for name in Metrics.__struct_fields__ if name != "n"]
    values = {name: [getattr(part, name) for part in parts] for name in names}
    means = {
        name: None if any(value is None for value in found) else math.fsum(found) / len(found)
        for name, found in values.items()
    }
    return Metrics(sum(part.n for part in parts), **means)  # type: ignore[arg-type]


def holdout(groups: Sequence[Hashable], share: float = 0.2, seed: int = 0) -> tuple[Indices, Indices]:
    """(training, test): indices of samples, with about ``share`` of the groups, all their samples, in the test.

    Which groups are drawn depends on the set of groups and the seed, not on the order of the samples.
    Raises :class:`UserError` where there are too few groups for both sides.
    """
    names = _names(groups)
    if not 0 < share < 1 or len(names) < 2:
        raise UserError("nothing can be held out", f"{len(names)} groups, a share of {share}")
    drawn = np.random.default_rng(seed).permutation(len(names))
    count = min(max(1, round(share * len(names))), len(names) - 1)
    held = {names[i] for i in drawn[:count].tolist()}
    test = np.array([repr(group) in held for group in groups])
    return np.flatnonzero(~test), np.flatnonzero(test)


def folds(groups: Sequence[Hashable], count: int = 5, seed: int = 0) -> list[tuple[Indices, Indices]]:
    """``count`` pairs (training, test) whose tests are disjoint and together everything; no group lies on both sides.

    Fewer where there are fewer groups.  Raises :class:`UserError` for fewer than two groups or folds.
    """
    names = _names(groups)
    count = min(count, len(names))
    if count < 2:
        raise UserError("nothing can be held out", f"{len(names)} groups in {count} folds")
    fold = {names[i]: at % count for at, i in enumerate(np.random.default_rng(seed).permutation(len(names)).tolist())}
    place = np.array([fold[repr(group)] for group in groups])
    return [(np.flatnonzero(place != at), np.flatnonzero(place == at)) for at in range(count)]


def _names(groups: Sequence[Hashable]) -> list[str]:
    return sorted({repr(group) for group in groups})
