"""Learned: log-time of any workload on one processor: the prior, and boosted trees on its residual.

The uncertainty is calibrated on samples whose shapes were held out: their errors give the deviation, larger where a
second, shallow model saw larger ones.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np
import xgboost as xgb

from tvm_codl.cost.features import Described
from tvm_codl.cost.folds import folds
from tvm_codl.cost.prior import Prior, total
from tvm_codl.cost.table import Rows

#: With fewer samples, or fewer shapes, the prior stands alone.
_FEWEST, _FEWEST_SHAPES = 24, 4
_FOLDS = 4
#: Deviation of log-time that the model misses even a perfect measurement by; adds to the measurement's own.
_MISSED = 0.04
_TREES: dict[str, Any] = {
    # Some measurements were disturbed: beyond a few per cent, an error counts linearly.
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
#: Deviation of a prediction from no samples.
UNKNOWN_SIGMA = 0.5
_LEAST = 0.01
#: The share of errors that the deviations are set to cover: the tails are wider than a normal distribution's.
_COVERED = 0.9


class Learned(msgspec.Struct, frozen=True):
    """``factor`` turns the spread model's answer into a deviation; ``trees`` and ``spread`` are None with few samples."""

    prior: Prior
    trees: xgb.Booster | None
    spread: xgb.Booster | None
    factor: float

    def log_ms(self, described: Described) -> Rows:
        """Shape (rows,)."""
        return self._predict(described)[0]

    def estimate(self, described: Described) -> tuple[Rows, Rows]:
        """(log_ms, sigma), each of shape (rows,)."""
        log_ms, columns = self._predict(described)
        return log_ms, self.factor * np.exp(_ask(self.spread, columns))

    def _predict(self, described: Described) -> tuple[Rows, Rows]:
        """(log_ms, the trees' columns)."""
        log_ms, columns = _prior_and_columns(self.prior, described)
        return log_ms + _ask(self.trees, columns), columns

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
    """The model, and each sample's error ``log_ms - predicted`` with its shape held out.

    ``own_sigma`` is the deviation of each measurement: noisy ones weigh less in the trees.
    """
    noise = np.zeros(len(log_ms)) if own_sigma is None else own_sigma
    weight = 1.0 / (_MISSED**2 + noise**2)
    prior = Prior.fit(described, np.exp(log_ms))
    prior_log_ms, columns = _prior_and_columns(prior, described)
    if len(log_ms) < _FEWEST or len({repr(shape) for shape in shapes}) < _FEWEST_SHAPES:
        error = log_ms - prior_log_ms
        spread = math.sqrt(float(np.mean(error**2))) if len(error) else 0.0
        return Learned(prior, None, None, max(spread, UNKNOWN_SIGMA / math.sqrt(1.0 + len(error)), _LEAST)), error
    error = np.zeros(len(log_ms))
    for training, test in folds(shapes, _FOLDS):
        part = Prior.fit(described[training], np.exp(log_ms[training]))
        part_log_ms, part_columns = _prior_and_columns(part, described)
        residual = log_ms - part_log_ms
        trees = _grow(_TREES, part_columns[training], residual[training], _ROUNDS, weight[training])
        error[test] = residual[test] - _ask(trees, part_columns[test])
    trees = _grow(_TREES, columns, log_ms - prior_log_ms, _ROUNDS, weight)
    size = np.log(np.clip(np.abs(error), 0.003, 1.0))
    spread_trees = _grow(_SPREAD, columns, size - float(size.mean()), _SPREAD_ROUNDS)
    scale = np.exp(_ask(spread_trees, columns))
    factor = float(np.quantile(np.abs(error) / scale, _COVERED)) / deviations(_COVERED)
    return Learned(prior, trees, spread_trees, max(factor, _LEAST)), error


def deviations(share: float) -> float:
    """Half the width, in deviations, of a normal distribution's central interval that holds ``share`` of it."""
    return NormalDist().inv_cdf((1.0 + share) / 2.0)


def _prior_and_columns(prior: Prior, described: Described) -> tuple[Rows, Rows]:
    """(log_ms of the prior, the trees' columns: features, that log_ms, and each term's share of the time)."""
    parts = prior.parts(described)
    times = total(parts)
    log_ms: Rows = np.log(times)
    return log_ms, np.column_stack([described.rows, log_ms, parts / times[:, None]])


def _ask(booster: xgb.Booster | None, columns: Rows) -> Rows:
    """0 where there is no booster."""
    if booster is None or not len(columns):
        return np.zeros(len(columns))
    return booster.inplace_predict(np.ascontiguousarray(columns, dtype=np.float32)).astype(np.float64)


def _grow(
    settings: Mapping[str, Any], columns: Rows, target: Rows, rounds: int, weight: Rows | None = None
) -> xgb.Booster:
    """``weight`` is relative to its mean."""
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
