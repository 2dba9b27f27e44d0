"""Phone data: operators of one phone and class with their features, and the learners that are compared on them."""

from __future__ import annotations

import msgspec
import numpy as np
import xgboost as xgb
from numpy.typing import NDArray

from tvm_codl.cost.phone_features import phone_features
from tvm_codl.cost.phone_rows import PhoneOperator

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

#: How the two learned models are called in a report.
LEARNED = "learned"
TREES = "plain trees"
_SIZES = ("in_hw", "in_channels", "out_hw", "out_channels", "flops", "kernel", "stride", "conv_groups")


class Data(msgspec.Struct, frozen=True):
    """Operators of one phone and class, with their features."""

    operators: list[PhoneOperator]
    rows: Floats
    names: tuple[str, ...]
    log_ms: Floats

    @classmethod
    def of(cls, operators: list[PhoneOperator]) -> Data:
        rows, names = phone_features(operators)
        return cls(operators, rows, names, np.log([op.ms for op in operators]))

    @property
    def shapes(self) -> list[tuple[str | int, ...]]:
        return [op.shape for op in self.operators]

    @property
    def sizes(self) -> Floats:
        """The columns that need no knowledge of the schedule."""
        return self.rows[:, [self.names.index(name) for name in _SIZES]]


def plain_trees(rows: Floats, log_ms: Floats, wanted: Floats) -> Floats:
    """Log-times of ``wanted`` by boosted trees with their usual settings: what one writes first."""
    known = xgb.DMatrix(rows, label=log_ms, nthread=1)
    parameters = {"max_depth": 6, "eta": 0.1, "tree_method": "hist", "nthread": 1, "seed": 0}
    trees = xgb.train(parameters, known, num_boost_round=300)
    found: Floats = trees.predict(xgb.DMatrix(wanted, nthread=1)).astype(np.float64)
    return found
