"""Regression: gradient-boosted trees (xgboost) on what a linear part does not explain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import xgboost as xgb

from tvm_codl.cost.features import Rows

LN2 = math.log(2.0)
_FEWEST = 8
_ROUNDS = 120
_TREES = {
    "objective": "reg:squarederror",
    "max_depth": 5,
    "eta": 0.1,
    "min_child_weight": 2,
    "lambda": 1.0,
    "subsample": 0.9,
    "tree_method": "hist",
    "nthread": 1,
    "seed": 0,
}


class Regression(msgspec.Struct):
    """Trees on the residual of a linear part; ``trees`` is None while there are too few samples to learn from."""

    weights: list[float]
    trees: xgb.Booster | None = None

    def log_ms(self, linear: Rows, rows: Rows) -> Rows:
        base: Rows = linear @ np.array(self.weights)
        if self.trees is not None and len(rows):
            base = base + self.trees.predict(xgb.DMatrix(rows.astype(np.float32), nthread=1))
        return base

    def to_json(self) -> dict[str, Any]:
        """With the trees in xgboost's own JSON."""
        trees = None if self.trees is None else msgspec.Raw(bytes(self.trees.save_raw("json")))
        return {"weights": self.weights, "trees": trees}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Regression:
        if value["trees"] is None:
            return cls(value["weights"])
        trees = xgb.Booster({"nthread": 1})
        trees.load_model(bytearray(msgspec.json.encode(value["trees"])))
        return cls(value["weights"], trees)


def ridge(linear: Rows, rows: Rows, target: Rows) -> Regression:
    """Ridge regression, scaled so that a handful of samples gives a plausible slope; then trees on what is left."""
    prior = np.zeros(linear.shape[1])
    penalty = np.diag([1e-6] + [0.3] * (linear.shape[1] - 1))
    prior[1] = 0.7 * LN2
    weights = np.linalg.solve(linear.T @ linear + penalty, linear.T @ target + penalty @ prior)
    return boost(linear, rows, target, [float(weight) for weight in weights])


def boost(linear: Rows, rows: Rows, target: Rows, weights: list[float]) -> Regression:
    """Trees on what ``linear @ weights`` leaves of ``target``, log-times of shape (samples,)."""
    if len(rows) < _FEWEST:
        return Regression(weights)
    residual = target - linear @ np.array(weights)
    data = xgb.DMatrix(rows.astype(np.float32), label=residual, nthread=1)
    return Regression(weights, xgb.train({**_TREES, "base_score": 0.0}, data, num_boost_round=_ROUNDS))
