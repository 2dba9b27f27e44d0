"""Learned: log-time of any workload on one processor, from scratch: the prior, and trees on what it leaves.

How sure it is comes from samples whose shapes were left out while learning: their errors give the deviation, larger where
a second, shallow model saw larger ones.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import xgboost as xgb

from tvm_codl.cost.evaluation.metrics import deviations, folds
from tvm_codl.cost.features import Described
from tvm_codl.cost.prior import Prior, total
from tvm_codl.cost.table import Rows

#: Fewer samples, or fewer shapes, than these and the prior stands alone.
_FEWEST, _FEWEST_SHAPES = 24, 4
_FOLDS = 4
#: The deviation of log-time that a perfect measurement is still missed by, about: what its own adds to.
_MISSED = 0.04
_TREES: dict[str, Any] = {
    # Some measurements were disturbed: an error counts in proportion beyond a few per cent.
    "objective": "reg:pseudohubererror",
    "huber_slope": 0.07,
    "max_depth": 4,
    "eta": 0.08,
    "min_child_weight": 2,
    "lambda": 3.0,
    "subsample": 0.8,
    "colsample_bytree": 0.4,
    "tree_method": "hist",
    "nthread": 1,
    "base_score": 0.0,
}
_ROUNDS = 200
_SPREAD: dict[str, Any] = {
    **{name: value for name, value in _TREES.items() if name != "huber_slope"},
    "objective": "reg:squarederror",
    "max_depth": 2,
    "eta": 0.1,
    "min_child_weight": 20,
}
_SPREAD_ROUNDS = 30
#: The deviation of a prediction that nothing was learned about.
UNKNOWN_SIGMA = 0.5
_LEAST = 0.01
#: The share of errors that the deviations are set to hold: the tails, which are wider than a normal distribution's.
_HOLDS = 0.9


class Learned(msgspec.Struct, frozen=True):
    """``factor`` turns the spread model's answer into a deviation; ``trees`` and ``spread`` are None with few samples."""

    prior: Prior
    trees: xgb.Booster | None
    spread: xgb.Booster | None
    factor: float

    def log_ms(self, described: Described) -> Rows:
        """Shape (rows,)."""
        parts = self.prior.parts(described.work, described.kinds, described.tiled)
        times = total(parts)
        result: Rows = np.log(times)
        if self.trees is not None and len(result):
            result = result + _ask(self.trees, _columns(described, parts, times))
        return result

    def both(self, described: Described) -> tuple[Rows, Rows]:
        """(log_ms, sigma), each of shape (rows,)."""
        parts = self.prior.parts(described.work, described.kinds, described.tiled)
        times = total(parts)
        columns = _columns(described, parts, times)
        log_ms: Rows = np.log(times)
        if self.trees is not None and len(log_ms):
            log_ms = log_ms + _ask(self.trees, columns)
        sigma = np.full(len(log_ms), self.factor)
        if self.spread is not None and len(log_ms):
            sigma = self.factor * np.exp(_ask(self.spread, columns))
        return log_ms, sigma

    def to_json(self) -> dict[str, Any]:
        return {
            "prior": self.prior.costs,
            "trees": _booster_json(self.trees),
            "spread": _booster_json(self.spread),
            "factor": self.factor,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Learned:
        """Raises ``KeyError``, ``TypeError``, ``ValueError`` or xgboost's error for anything but :meth:`to_json`'s."""
        costs = msgspec.convert(value["prior"], dict[str, list[float]])
        return cls(Prior(costs), _booster(value["trees"]), _booster(value["spread"]), float(value["factor"]))


def learn(
    described: Described, log_ms: Rows, shapes: Sequence[Hashable], own_sigma: Rows | None = None
) -> tuple[Learned, Rows]:
    """What samples teach, and of each sample the error ``log_ms - predicted`` with its shape left out of the learning.

    ``own_sigma`` is the deviation of each measurement itself: what repeats badly teaches the trees less.
    """
    noise = np.zeros(len(log_ms)) if own_sigma is None else own_sigma
    weight = 1.0 / (_MISSED**2 + noise**2)
    places, names = np.arange(len(log_ms)), [repr(shape) for shape in shapes]
    if len(log_ms) < _FEWEST or len(set(names)) < _FEWEST_SHAPES:
        prior = _prior(described, log_ms, places)
        error = log_ms - np.log(total(prior.parts(described.work, described.kinds, described.tiled)))
        spread = math.sqrt(float(np.mean(error**2))) if len(error) else 0.0
        return Learned(prior, None, None, max(spread, UNKNOWN_SIGMA / math.sqrt(1.0 + len(error)), _LEAST)), error
    error = np.zeros(len(log_ms))
    for training, test in folds(names, _FOLDS):
        prior = _prior(described, log_ms, training)
        parts = prior.parts(described.work, described.kinds, described.tiled)
        times = total(parts)
        columns = _columns(described, parts, times)
        left = log_ms - np.log(times)
        trees = _grow(_TREES, columns[training], left[training], _ROUNDS, weight[training])
        error[test] = left[test] - _ask(trees, columns[test])
    prior = _prior(described, log_ms, places)
    parts = prior.parts(described.work, described.kinds, described.tiled)
    times = total(parts)
    columns = _columns(described, parts, times)
    trees = _grow(_TREES, columns, log_ms - np.log(times), _ROUNDS, weight)
    size = np.log(np.clip(np.abs(error), 0.003, 1.0))
    middle = float(size.mean())
    spread_trees = _grow(_SPREAD, columns, size - middle, _SPREAD_ROUNDS)
    shape = np.exp(_ask(spread_trees, columns))
    factor = float(np.quantile(np.abs(error) / shape, _HOLDS)) / deviations(_HOLDS)
    return Learned(prior, trees, spread_trees, max(factor, _LEAST)), error


def _prior(described: Described, log_ms: Rows, chosen: np.ndarray[Any, Any]) -> Prior:
    kinds = [described.kinds[i] for i in chosen.tolist()]
    return Prior.fit(described.work[chosen], kinds, described.tiled[chosen], np.exp(log_ms[chosen]))


def _columns(described: Described, parts: Rows, times: Rows) -> Rows:
    """The features, the prior's time, and which part of it each kind of work is."""
    return np.column_stack([described.rows, np.log(times), parts / times[:, None]])


def _ask(booster: xgb.Booster, columns: Rows) -> Rows:
    answer: Rows = booster.inplace_predict(np.ascontiguousarray(columns, dtype=np.float32)).astype(np.float64)
    return answer


def _grow(
    settings: Mapping[str, Any], columns: Rows, target: Rows, rounds: int, weight: Rows | None = None
) -> xgb.Booster:
    """``weight`` counts in proportion to its mean."""
    share = None if weight is None else weight / weight.mean()
    data = xgb.DMatrix(columns.astype(np.float32), label=target, weight=share, nthread=1)
    return xgb.train({**settings, "seed": 0}, data, num_boost_round=rounds)


def _booster_json(booster: xgb.Booster | None) -> msgspec.Raw | None:
    return None if booster is None else msgspec.Raw(bytes(booster.save_raw("json")))


def _booster(value: Any) -> xgb.Booster | None:
    if value is None:
        return None
    booster = xgb.Booster({"nthread": 1})
    booster.load_model(bytearray(msgspec.json.encode(value)))
    return booster
