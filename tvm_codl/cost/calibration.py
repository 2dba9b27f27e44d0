"""Calibration: moves the learned curve of an operator's cuts through its measured cuts.

Errors of neighbouring cuts are alike, so the error is interpolated between measured sizes.  How much the uncertainty
shrinks near a measurement is learned from held-out shapes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from tvm_codl.cost.table import Rows
from tvm_codl.records.workload import Workload

#: An operator's key and an axis.
Place = tuple[str, str]


class Curve(msgspec.Struct, frozen=True):
    """Measured sizes in order, the learned curve's errors there (log-time), and the measured log-times."""

    sizes: list[float]
    missed: list[float]
    log_ms: list[float]


class Trust(msgspec.Struct, frozen=True):
    """``whole`` (0 to 1): the part of an operator's error that its pieces share.  Beside a measured neighbour the deviation
    is ``sqrt(near + far * distance)`` of the one without, distance in log of size."""

    whole: float = 1.0
    near: float = 0.1
    far: float = 0.5

    def left(self, distance: Rows) -> Rows:
        return np.sqrt(np.minimum(self.near + self.far * distance, 1.0))


class Calibration(msgspec.Struct, frozen=True):
    """``curves`` of axes with a measured cut, and ``wholes``: the error of each measured operator."""

    curves: dict[Place, Curve]
    wholes: dict[str, float]
    trust: Trust

    def move(self, places: Sequence[Place], sizes: Rows, log_ms: Rows, sigma: Rows) -> tuple[Rows, Rows]:
        """(log_ms, sigma) of pieces, calibrated."""
        log_ms, sigma = log_ms.copy(), sigma.copy()
        groups: dict[Place, list[int]] = {}
        for i, place in enumerate(places):
            groups.setdefault(place, []).append(i)
        for place, members in groups.items():
            at = np.array(members, dtype=np.intp)
            if (curve := self.curves.get(place)) is not None:
                moved = log_ms[at] + np.interp(sizes[at], curve.sizes, curve.missed)
                log_ms[at] = _between(moved, sizes[at], curve.sizes, curve.log_ms)
                distance = np.abs(np.log(sizes[at][:, None] / np.array(curve.sizes)[None, :])).min(axis=1)
                sigma[at] *= self.trust.left(distance)
            elif place[0] in self.wholes:
                log_ms[at] += self.trust.whole * self.wholes[place[0]]
                sigma[at] *= math.sqrt(max(1.0 - self.trust.whole**2, self.trust.near))
        return log_ms, sigma


def calibrate(workloads: Sequence[Workload], log_ms: Rows, missed: Rows, left_out: Rows) -> Calibration:
    """``missed`` is the learned curve's error for each sample, ``left_out`` its error with the shape held out."""
    columns = (missed, log_ms, left_out)
    wholes = {w.key: [float(c[i]) for c in columns] for i, w in enumerate(workloads) if w.cut is None}
    samples: dict[Place, dict[int, list[int]]] = {}
    extents: dict[Place, int] = {}
    for i, w in enumerate(workloads):
        if w.cut and w.whole:
            place = (w.whole.key, w.cut.axis)
            samples.setdefault(place, {}).setdefault(w.cut.hi - w.cut.lo, []).append(i)
            extents[place] = w.cut.extent
    curves, held_out = {}, {}
    for place, by_size in samples.items():
        points = {size: [float(np.mean(c[members])) for c in columns] for size, members in by_size.items()}
        if place[0] in wholes:
            points.setdefault(extents[place], wholes[place[0]])
        sizes = sorted(points)
        errors, times, left = ([points[size][i] for size in sizes] for i in range(3))
        curves[place] = Curve([float(size) for size in sizes], errors, times)
        held_out[place] = Curve(curves[place].sizes, left, times)
    whole_missed, whole_left = ({key: values[i] for key, values in wholes.items()} for i in (0, 2))
    return Calibration(curves, whole_missed, _trust(held_out, whole_left))


def _trust(curves: dict[Place, Curve], wholes: dict[str, float]) -> Trust:
    """Fitted to each measured cut as predicted from its neighbours alone."""
    scale: list[float] = []
    distance: list[float] = []
    left: list[float] = []
    pairs: list[tuple[float, float]] = []
    for place, curve in curves.items():
        sizes, missed = np.array(curve.sizes), np.array(curve.missed)
        for i in range(len(sizes)):
            if place[0] in wholes and i < len(sizes) - 1:
                pairs.append((wholes[place[0]], float(missed[i])))
            if len(sizes) < 2:
                continue
            others = np.arange(len(sizes)) != i
            guess = float(np.interp(sizes[i], sizes[others], missed[others]))
            distance.append(float(np.abs(np.log(sizes[i] / sizes[others])).min()))
            left.append(float(missed[i]) - guess)
            scale.append(float(missed[i]))
    if len(left) < 16:
        return Trust()
    reference = max(_spread(np.array(scale)), 1e-3)
    near_by, ratio = np.array(distance), np.minimum((np.array(left) / reference) ** 2, 9.0)
    order = np.argsort(near_by)
    bins = [part for part in np.array_split(order, min(6, len(order) // 8)) if len(part)]
    across = np.array([float(near_by[part].mean()) for part in bins])
    # A robust variance of each bin: that of a normal distribution with the same 80 % quantile.
    level = np.array([float(np.quantile(ratio[part], 0.8)) / 1.6424 for part in bins])
    slope, start = np.polyfit(across, level, 1).tolist() if len(bins) > 1 else (0.0, float(level.mean()))
    x, y = (np.array([pair[k] for pair in pairs]) for k in (0, 1)) if pairs else (np.zeros(0), np.zeros(0))
    carried = float(x @ y / max(x @ x, 1e-9)) if len(x) >= 16 else 1.0
    return Trust(min(max(carried, 0.0), 1.0), min(max(start, 0.01), 1.0), min(max(slope, 0.0), 10.0))


def _spread(values: Rows) -> float:
    return float(np.quantile(np.abs(values), 0.8)) / 1.2816


def _between(log_ms: Rows, at: Rows, sizes: Sequence[float], times: Sequence[float]) -> Rows:
    """Clipped between the times of the next smaller and the next larger measured size."""
    right = np.searchsorted(sizes, at)
    left = np.searchsorted(sizes, at, side="right") - 1
    padded = np.array([-np.inf, *times, np.inf])
    low, high = padded[left + 1], padded[np.minimum(right, len(sizes)) + 1]
    return np.clip(log_ms, np.minimum(low, high), np.maximum(low, high))
