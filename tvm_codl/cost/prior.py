"""Prior: a time as a sum of what a kernel does, each with a cost of its own on one processor.

``ms = sum(cost[term] * work[term])`` with costs >= 0 for each class of operators, fitted so that the errors of log-time
are small: a handful of numbers (cycles, bytes, starts) that hold for shapes of any size, where trees can only repeat what
they have seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from tvm_codl.cost.table import Rows
from tvm_codl.cost.work import TERMS

_STEPS = 12
_LEAST_MS = 1e-4
#: Errors of log-time beyond this weigh less: a disturbed measurement must not bend the costs.
_OUTLIER = 0.15
#: How firmly costs are held to those of the class above, as samples of that many relative deviations; a class of few
#: samples, or one that never did some kind of work, so has something to stand on.
_HELD = 0.05
#: A class of fewer samples is held more firmly: what it leaves to itself it learns from a handful of shapes.
_MANY = 800
LIGHT = "light"
ALL = ""
#: Where nothing is known: milliseconds for a start, for 1,000 cycles, for a kilobyte, of a core at a few GHz.
# fmt: off
START = {
    "one": 2e-3, "launches": 2e-3, "mac": 5e-4, "mac_8": 5e-4, "mac_4": 3e-4, "mac_2": 3e-4, "mac_1": 4e-4, "mac_lone": 8e-4,
    "tiles": 1e-4, "items": 1e-4, "pack": 1e-4, "weights": 2e-5, "extra": 5e-5, "data": 1e-5, "data_l2": 1e-5,
    "data_l3": 2e-5, "pad": 3e-5, "pad_l2": 2e-5, "pad_l3": 5e-5, "out": 3e-5, "out_l2": 2e-5, "out_l3": 5e-5,
    "slice": 5e-5, "slice_l2": 2e-5, "slice_l3": 5e-5, "relayout": 1e-4, "relayout_scalar": 5e-5, "relayout_near": 5e-5, "relayout_far": 5e-5,
    "relayout_l3": 1e-4, "weights_near": 1e-6, "weights_far": 5e-6, "data_near": 1e-6, "data_far": 5e-6,
    "conflict": 5e-4, "fetch": 1e-6, "inline": 1e-4, "exp": 1e-3, "flops": 4e-4, "scalar": 1e-4,
}
# fmt: on


class Prior(msgspec.Struct, frozen=True):
    """``costs``: per class of operators a cost for each of :data:`~tvm_codl.cost.work.TERMS`.  ``LIGHT`` serves unknown
    classes without a register tile, ``ALL`` the others."""

    costs: dict[str, list[float]]

    @classmethod
    def fit(cls, work: Rows, kinds: Sequence[str], tiled: NDArray[np.bool_], ms: Rows) -> Prior:
        """``work`` has shape (samples, terms); ``tiled`` tells which rows have a register tile."""
        names = np.asarray(kinds)
        start = np.array([START[term] for term in TERMS])
        start = start * float(np.median(ms / np.maximum(work @ start, _LEAST_MS)))
        every = _fit(work, ms, start)
        costs = {ALL: every}
        if np.any(~tiled):
            costs[LIGHT] = _fit(work[~tiled], ms[~tiled], every)
        for kind in sorted(set(kinds)):
            chosen = names == kind
            above = costs[ALL if tiled[chosen].any() else LIGHT]
            costs[kind] = _fit(work[chosen], ms[chosen], above)
        return cls({name: found.tolist() for name, found in costs.items()})

    def parts(self, work: Rows, kinds: Sequence[str], tiled: NDArray[np.bool_]) -> Rows:
        """Milliseconds of each term, shape (rows, terms); their sum is the time."""
        names = np.asarray(kinds)
        result = np.zeros_like(work)
        for kind in sorted(set(names.tolist())):
            chosen = names == kind
            light = LIGHT if LIGHT in self.costs and not bool(tiled[chosen].any()) else ALL
            result[chosen] = work[chosen] * np.array(self.costs.get(kind, self.costs[light]))
        return result


def total(parts: Rows) -> Rows:
    """Milliseconds of each row, never nothing."""
    result: Rows = np.maximum(parts.sum(axis=1), _LEAST_MS)
    return result


def _fit(work: Rows, ms: Rows, above: Rows) -> Rows:
    """Costs near ``above``.  In units of it, so that they are all of one size."""
    unit = np.maximum(above, 1e-3 * np.array([START[term] for term in TERMS]))
    scaled, hold = work * unit, np.diag(np.full(len(unit), _HELD * math.sqrt(max(_MANY / len(ms), 1.0))))
    costs = _nonnegative(np.vstack([scaled / ms[:, None], hold]), np.append(np.ones(len(ms)), np.diag(hold)))
    for _ in range(_STEPS):
        # Gauss-Newton on the errors of log-time, each weighed by how far it is from an outlier.
        predicted = np.maximum(scaled @ costs, 1e-6)
        slope = scaled / predicted[:, None]
        error = np.log(ms / predicted)
        weight = 1.0 / np.sqrt(1.0 + (error / _OUTLIER) ** 2)
        matrix = np.vstack([slope * weight[:, None], hold])
        wanted = _nonnegative(matrix, np.append((error + slope @ costs) * weight, np.diag(hold)))
        costs = (costs + wanted) / 2.0
    result: Rows = costs * unit
    return result


def _nonnegative(matrix: Rows, target: Rows) -> Rows:
    """The ``x >= 0`` for which ``matrix @ x`` is nearest to ``target``."""
    found: Rows = nnls(matrix, target, maxiter=50 * matrix.shape[1])[0]
    return found


def terms_matrix(work: Mapping[str, Rows], terms: Sequence[str]) -> Rows:
    return np.stack([work[name] for name in terms], axis=1)
