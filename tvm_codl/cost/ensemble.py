"""Ensemble: log-time of many rows with a calibrated deviation, from learners whose errors differ.

Boosted trees find the steps of latency, a Gaussian process what is smooth between them.  How they are mixed and how
sure the mixture is are learned from predictions of groups that were left out, within the training samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import xgboost as xgb
from numpy.typing import NDArray

from tvm_codl.cost.evaluation.metrics import deviations, folds
from tvm_codl.cost.process import Process
from tvm_codl.errors import UserError

Rows = NDArray[np.float64]
Indices = NDArray[np.intp]

FORMAT = 1


class Settings(msgspec.Struct, frozen=True):
    """How much to compute.  ``boosters`` differ in seed and depth; ``points`` 0 leaves the process out."""

    boosters: int = 3
    rounds: int = 300
    rate: float = 0.08
    inner_folds: int = 5
    steps: int = 20
    points: int = 2500


FULL = Settings()
QUICK = Settings(boosters=1, rounds=120, rate=0.15, inner_folds=3, steps=8)

_TREES = {
    "objective": "reg:squarederror",
    "subsample": 0.8,
    "colsample_bytree": 0.6,
    "min_child_weight": 2,
    "tree_method": "hist",
    "nthread": 1,
    "base_score": 0.0,
}
_DEPTHS = (6, 5, 7, 4)


class Ensemble:
    """Make one with :meth:`fit` or :meth:`from_json`; :meth:`predict` gives log-milliseconds and their deviation."""

    def __init__(
        self,
        slopes: Mapping[int, float],
        boosters: Sequence[xgb.Booster],
        process: Process | None,
        share: float,
        doubts: Sequence[float],
        sigmas: Sequence[float],
    ) -> None:
        self._slopes, self._boosters, self._process = dict(slopes), list(boosters), process
        self._share, self._doubts, self._sigmas = share, list(doubts), list(sigmas)

    @classmethod
    def fit(
        cls,
        rows: Rows,
        log_ms: Rows,
        groups: Sequence[Hashable] | None = None,
        *,
        slopes: Mapping[int, float] | None = None,
        settings: Settings = FULL,
    ) -> Ensemble:
        """Learn log-times of shape (samples,) from rows of shape (samples, columns).

        ``groups`` names what must not lie on both sides of an inner fold (a shape, an operator); by default equal rows.
        ``slopes`` says how log-time runs along a column to first order: {column: d log_ms / d value}; the learners
        learn what is left.  The order of the samples does not matter.
        Raises :class:`UserError` for fewer than 8 samples or two groups, and for numbers that are not finite.
        """
        if len(rows) < 8 or not np.all(np.isfinite(rows)) or not np.all(np.isfinite(log_ms)):
            raise UserError("these samples cannot be learned from", f"{len(rows)} samples, all must be finite")
        names = [repr(row) for row in rows.tolist()] if groups is None else [repr(group) for group in groups]
        slopes = {int(column): float(slope) for column, slope in (slopes or {}).items()}
        known = _Points.of(rows, log_ms - _offset(rows, slopes), names)
        inner = folds(known.groups, settings.inner_folds)
        trees = np.empty(len(known.rows))
        for training, test in inner:
            trees[test] = _grow(known.part(training), settings, 1)[0].predict(_matrix(known.rows[test]))
        boosters = _grow(known, settings, settings.boosters)
        process = None
        share, mixed, doubt = 0.0, trees, np.zeros(len(trees))
        if settings.points:
            process = Process.fit(known.rows, known.target, known.counts, steps=settings.steps, points=settings.points)
            smooth, own = process.without(known.rows, [test for _, test in inner])
            share = _mix(smooth, trees, known)
            mixed = share * smooth + (1.0 - share) * trees
            doubt = _doubt(own, smooth - trees)
        error = np.abs(mixed[known.place] - (log_ms - _offset(rows, slopes)))
        doubts, sigmas = _calibrate(doubt[known.place], error)
        return cls(slopes, boosters, process, share, doubts, sigmas)

    def predict(self, rows: Rows) -> tuple[Rows, Rows]:
        """(log_ms, sigma), each of shape (rows,): 90 % of measured log-times lie within 1.64 sigma."""
        if not len(rows):
            return np.zeros(0), np.zeros(0)
        matrix = _matrix(rows)
        trees = np.mean([booster.predict(matrix) for booster in self._boosters], axis=0, dtype=np.float64)
        offset = _offset(rows, self._slopes)
        if self._process is None:
            return offset + trees, np.full(len(rows), self._sigmas[0])
        smooth, own = self._process.predict(rows)
        mixed = self._share * smooth + (1.0 - self._share) * trees
        doubt = _doubt(own, smooth - trees)
        beyond = np.maximum(doubt / self._doubts[-1], 1.0) if self._doubts[-1] > 0 else 1.0
        return offset + mixed, np.interp(doubt, self._doubts, self._sigmas) * beyond

    def to_json(self) -> dict[str, Any]:
        """With the trees in xgboost's own JSON."""
        return {
            "format": FORMAT,
            "slopes": sorted(self._slopes.items()),
            "boosters": [msgspec.Raw(bytes(booster.save_raw("json"))) for booster in self._boosters],
            "process": None if self._process is None else self._process.to_json(),
            "share": self._share,
            "doubts": self._doubts,
            "sigmas": self._sigmas,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ensemble:
        """Raises ``KeyError``, ``TypeError``, ``ValueError`` or xgboost's error for anything but :meth:`to_json`'s."""
        if value["format"] != FORMAT:
            raise ValueError("it was made by another version of tvm_codl")
        boosters = []
        for stored in value["boosters"]:
            booster = xgb.Booster({"nthread": 1})
            booster.load_model(bytearray(msgspec.json.encode(stored)))
            boosters.append(booster)
        process = None if value["process"] is None else Process.from_json(value["process"])
        slopes = {int(column): float(slope) for column, slope in value["slopes"]}
        return cls(slopes, boosters, process, float(value["share"]), value["doubts"], value["sigmas"])


class _Points(msgspec.Struct, frozen=True):
    """Distinct rows of a group, in an order of their own: the median of the samples of each, and how many there are.

    ``place`` says which point each sample belongs to.
    """

    rows: Rows
    target: Rows
    counts: Indices
    groups: list[str]
    place: Indices

    @classmethod
    def of(cls, rows: Rows, target: Rows, names: Sequence[str]) -> _Points:
        number = {name: i for i, name in enumerate(sorted(set(names)))}
        marked = np.column_stack([[number[name] for name in names], rows])
        first, place, counts = np.unique(marked, axis=0, return_index=True, return_inverse=True, return_counts=True)[1:]
        order = np.argsort(place.ravel(), kind="stable")
        parts = np.split(target[order], np.cumsum(counts)[:-1])
        medians = np.array([np.median(part) for part in parts])
        return cls(rows[first], medians, counts, [names[i] for i in first.tolist()], place.ravel())

    def part(self, chosen: Indices) -> _Points:
        groups = [self.groups[i] for i in chosen.tolist()]
        return _Points(self.rows[chosen], self.target[chosen], self.counts[chosen], groups, chosen)


def _matrix(rows: Rows) -> xgb.DMatrix:
    return xgb.DMatrix(rows.astype(np.float32), nthread=1)


def _offset(rows: Rows, slopes: Mapping[int, float]) -> Rows:
    total = np.zeros(len(rows))
    for column in sorted(slopes):
        total = total + slopes[column] * rows[:, column]
    return total


def _grow(known: _Points, settings: Settings, count: int) -> list[xgb.Booster]:
    weight = np.sqrt(known.counts)
    data = xgb.DMatrix(known.rows.astype(np.float32), label=known.target, weight=weight, nthread=1)
    return [
        xgb.train(
            {**_TREES, "eta": settings.rate, "max_depth": _DEPTHS[seed % len(_DEPTHS)], "seed": seed},
            data,
            num_boost_round=settings.rounds,
        )
        for seed in range(count)
    ]


def _mix(smooth: Rows, trees: Rows, known: _Points) -> float:
    """The process's share of the mixture that has the smallest mean error on what was left out."""
    shares = np.linspace(0.0, 1.0, 21)
    weight = known.counts / known.counts.sum()
    errors = [float(weight @ np.abs(share * smooth + (1.0 - share) * trees - known.target)) for share in shares]
    return float(shares[int(np.argmin(errors))])


def _doubt(own: Rows, apart: Rows) -> Rows:
    """How unsure a prediction looks: the process's own deviation, and how far the learners are apart."""
    return np.hypot(own, 0.5 * apart)


def _calibrate(doubt: Rows, error: Rows) -> tuple[list[float], list[float]]:
    """Deviations that would have held 90 % of the errors, as a rising function of the doubt: (doubts, sigmas)."""
    count = max(1, min(10, len(doubt) // 30))
    order = np.argsort(doubt, kind="stable")
    if float(doubt[order[-1]]) - float(doubt[order[0]]) < 1e-12:
        count = 1
    parts = np.array_split(order, count)
    sigmas = np.array([np.quantile(error[part], 0.9) for part in parts]) / deviations(0.9)
    return (
        [float(np.median(doubt[part])) for part in parts],
        np.maximum(np.maximum.accumulate(sigmas), 1e-4).tolist(),
    )
