"""Where a convolution of 1 x 1 windows takes all its positions for one row.  Imports no TVM.

Such a convolution sees no rows, and register tiles, which stay within one, fit seven columns badly: 49 are ten tiles of five.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tvm_codl.kernels.tiles.register_tiles import Problem, choose, cycles
from tvm_codl.kernels.tiles.vectors import Booleans

#: The share of the time that one row must take at most: a CPU shares out rows to its threads.
_GAIN = 0.92
#: Cycles in which a vector of inputs is copied, where the last tile reads beyond them.
_COPY = 2.0


def in_one_row(problem: Problem) -> Booleans:
    """Whether the positions of ``problem``, whose windows are 1 x 1 without stride or padding, are computed as one row."""
    positions = problem.rows * problem.columns
    one = msgspec.structs.replace(problem, rows=np.ones_like(positions), columns=positions)
    faster: Booleans = _expected(one) < _GAIN * _expected(problem)
    return faster & (np.asarray(problem.rows) > 1)


def _expected(problem: Problem) -> Any:
    """Cycles for each input channel, a copy among them."""
    tiles = choose(problem)
    copied = np.where(problem.columns % tiles.columns, _COPY * problem.rows * problem.columns / problem.lanes, 0.0)
    return cycles(problem, tiles.columns, tiles.blocks) + copied
