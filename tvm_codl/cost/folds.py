"""Folds: splits of samples for held-out tests.

Groups are held out whole: samples of one group (equal operators of several networks, pieces of one operator) lie all
on one side, or the test would repeat the training.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_codl.errors import UserError

Indices = NDArray[np.intp]


def folds(groups: Sequence[Hashable], count: int = 5, seed: int = 0) -> list[tuple[Indices, Indices]]:
    """``count`` pairs (training, test) of indices; the tests are disjoint and together everything.

    The split depends on the set of groups and the seed, not on the samples' order.  Fewer folds where there are fewer
    groups.  Raises :class:`UserError` for fewer than two groups or folds.
    """
    names = sorted({repr(group) for group in groups})
    count = min(count, len(names))
    if count < 2:
        raise UserError("nothing can be held out", f"{len(names)} groups in {count} folds")
    fold = {names[i]: at % count for at, i in enumerate(np.random.default_rng(seed).permutation(len(names)).tolist())}
    place = np.array([fold[repr(group)] for group in groups])
    return [(np.flatnonzero(place != at), np.flatnonzero(place == at)) for at in range(count)]
