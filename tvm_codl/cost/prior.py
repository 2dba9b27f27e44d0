"""Prior: a time as a sum over what a kernel does, each term with its own cost on one processor.

``ms = sum(cost[term] * work[term])`` with costs >= 0 for each class of operators, fitted to the errors of log-time.  A
handful of numbers (cycles, bytes, starts) that extrapolate to any size, where trees only interpolate.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from tvm_codl.cost.features import Described
from tvm_codl.cost.table import Rows

_STEPS = 12
_LEAST_MS = 1e-4
#: Errors of log-time beyond this weigh less: disturbed measurements must not bend the costs.
_OUTLIER = 0.15
#: Weight of the pull towards the class above, in relative deviations: supports classes with few samples or unseen terms.
_HELD = 0.05
#: Classes with fewer samples are pulled harder, for they see a handful of shapes.
_MANY = 800
LIGHT = "light"
ALL = ""


class Prior(msgspec.Struct, frozen=True):
    """``costs``: for each class of operators a cost per term of its ``work``.  Unknown classes use ``LIGHT`` if they
    have no register tile, else ``ALL``."""

    costs: dict[str, list[float]]

    @classmethod
    def fit(cls, described: Described, ms: Rows) -> Prior:
        """``ms`` has shape (samples,)."""
        work, tiled = described.work, described.tiled
        start = described.start * float(np.median(ms / np.maximum(work @ described.start, _LEAST_MS)))
        floor = 1e-3 * described.start
        every = _fit(work, ms, start, floor)
        costs = {ALL: every}
        if np.any(~tiled):
            costs[LIGHT] = _fit(work[~tiled], ms[~tiled], every, floor)
        for kind in np.unique(described.kinds).tolist():
            chosen = described.kinds == kind
            above = costs[ALL if tiled[chosen].any() else LIGHT]
            costs[kind] = _fit(work[chosen], ms[chosen], above, floor)
        return cls({name: row.tolist() for name, row in costs.items()})

    def parts(self, described: Described) -> Rows:
        """Milliseconds of each term, shape (rows, terms); their sum is the time."""
        result = np.zeros_like(described.work)
        for kind in np.unique(described.kinds).tolist():
            chosen = described.kinds == kind
            light = LIGHT if LIGHT in self.costs and not bool(described.tiled[chosen].any()) else ALL
            result[chosen] = described.work[chosen] * np.array(self.costs.get(kind, self.costs[light]))
        return result


def total(parts: Rows) -> Rows:
    """Milliseconds of each row, at least ``_LEAST_MS``."""
    result: Rows = np.maximum(parts.sum(axis=1), _LEAST_MS)
    return result


def _fit(work: Rows, ms: Rows, above: Rows, floor: Rows) -> Rows:
    """Costs near ``above``, in units of it (of ``floor`` at least), so that they are of one size."""
    unit = np.maximum(above, floor)
    scaled, hold = work * unit, np.diag(np.full(len(unit), _HELD * math.sqrt(max(_MANY / len(ms), 1.0))))
    costs = _nonnegative(np.vstack([scaled / ms[:, None], hold]), np.append(np.ones(len(ms)), np.diag(hold)))
    for _ in range(_STEPS):
        # Gauss-Newton on the errors of log-time; outliers weigh less.
        predicted = np.maximum(scaled @ costs, 1e-6)
        slope = scaled / predicted[:, None]
        error = np.log(ms / predicted)
        weight = 1.0 / np.sqrt(1.0 + (error / _OUTLIER) ** 2)
        matrix = np.vstack([slope * weight[:, None], hold])
        wanted = _nonnegative(matrix, np.append((error + slope @ costs) * weight, np.diag(hold)))
        costs = (costs + wanted) / 2.0
    return costs * unit


def _nonnegative(matrix: Rows, target: Rows) -> Rows:
    """The ``x >= 0`` for which ``matrix @ x`` is nearest to ``target``."""
    from scipy.optimize import nnls  # a quarter of a second to import, and most fits are kept

    solution: Rows = nnls(matrix, target, maxiter=50 * matrix.shape[1])[0]
    return solution
