"""Additive time: a start, and so many milliseconds for each unit of work, of bytes and of waves; none negative.

An operator's time is a sum of amounts before anything else, and a sum of logarithms cannot say so.  Few samples suffice
for it; the learners learn the ratio of the measured time to this sum.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from tvm_codl.cost.phone_features import WORK

Floats = NDArray[np.float64]

#: Amounts (columns of ``phone_features``, base-2 logarithms there) whose price depends on the kernel and the block.
_PRICED = (
    "work_of_rounds_512",
    "work_of_rounds_1024",
    "work_of_rounds_2048",
    "work",
    "padded_work",
    "work_of_groups",
    WORK,
)
_OF_WAVES = ("work_of_waves_16", "work_of_waves_64", "work_of_waves_128")
_PLAIN = (
    "bytes_in",
    "bytes_out",
    "bytes_weights",
    "reads_weights",
    "reads_input",
    "work_of_thread",
    "steps",
    "waves_of_unit",
    "waves_64",
    "flops",
    "groups_of_unit",
)
_PENALTY = 0.01
#: Relative errors beyond this count linearly: a kernel that is an exception does not bend the sum.
_BENT = 0.15
_PASSES = 3


class AdditiveTime(msgspec.Struct, frozen=True):
    """Milliseconds for each unit of a term; make one with :meth:`fit`."""

    prices: list[float]

    @classmethod
    def fit(cls, rows: Floats, names: tuple[str, ...], log_ms: Floats) -> AdditiveTime:
        """Non-negative least squares of relative errors, with a small penalty, from rows of ``phone_features``."""
        relative = _terms(rows, names) / np.exp(log_ms)[:, None]
        scale = np.sqrt(np.mean(relative**2, axis=0)) + 1e-300
        count, size = relative.shape
        penalty = np.sqrt(_PENALTY * count / size) * np.eye(size)
        weight = np.ones(count)
        prices = np.zeros(size)
        for _ in range(_PASSES):
            design = np.vstack([weight[:, None] * relative / scale, penalty])
            prices = nnls(design, np.concatenate([weight, np.zeros(size)]))[0]
            error = np.abs(relative @ (prices / scale) - 1.0)
            weight = np.sqrt(1.0 / np.maximum(1.0, error / _BENT))
        return cls((prices / scale).tolist())

    def predict(self, rows: Floats, names: tuple[str, ...]) -> Floats:
        """Log-milliseconds of shape (rows,)."""
        found: Floats = np.log(np.maximum(_terms(rows, names) @ np.array(self.prices), 1e-6))
        return found


def _terms(rows: Floats, names: tuple[str, ...]) -> Floats:
    """Shape (rows, terms), in units that keep every term near 1."""

    def amounts(wanted: tuple[str, ...]) -> Floats:
        found: Floats = 2.0 ** (rows[:, [names.index(name) for name in wanted]] - 20.0)
        return found

    winograd = rows[:, [names.index("winograd")]]
    large = (rows[:, [names.index("block")]] >= 4.0).astype(np.float64)
    priced, waves = amounts(_PRICED), amounts(_OF_WAVES)
    start = np.ones((len(rows), 1))
    return np.hstack([start, priced, waves, amounts(_PLAIN), priced * winograd, priced * large, waves * large])
