"""Many cuts at once: split rules compute with arrays as they do with integers.

A rule is written for one cut.  :class:`Many` holds a number for each of many cuts and stands in for the ``int``.  Where
the rule decides something (``if``, ``==``, ``min``) that differs between the cuts, :class:`Differ` interrupts it, and
:func:`in_groups` asks again for the cuts on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Rows = NDArray[np.intp]
T = TypeVar("T")


class Differ(Exception):
    """A condition holds for some cuts (``yes``, a mask) and not for others."""

    def __init__(self, yes: NDArray[np.bool_]) -> None:
        super().__init__("a condition holds for some of the cuts only")
        self.yes = yes


class Many(np.ndarray[Any, np.dtype[np.int64]]):
    """A number for each cut.  Its truth is that of all its entries; raises :class:`Differ` if they disagree.

    Shapes, slabs and attributes hold it where they are declared with ``int``.
    """

    def __bool__(self) -> bool:
        yes = int(np.count_nonzero(self))
        if 0 < yes < self.size:
            raise Differ(np.asarray(self) != 0)
        return yes > 0


def lower(a: int, b: int) -> int:
    """``min`` for each cut; ``min`` itself works too, but parts the cuts into groups."""
    return np.minimum(a, b) if isinstance(a, Many) or isinstance(b, Many) else min(a, b)


def upper(a: int, b: int) -> int:
    """``max`` for each cut."""
    return np.maximum(a, b) if isinstance(a, Many) or isinstance(b, Many) else max(a, b)


def in_groups(ask: Callable[[int, int], T], lo: Integers, hi: Integers) -> Iterator[tuple[Rows, T]]:
    """What ``ask`` answers for ``lo[i]``, ``hi[i]``: groups of them (their indices ``i``), each with one answer, whose
    numbers are ints if equal for all of the group, else :class:`Many`."""
    groups = [np.arange(len(lo))] if len(lo) else []
    while groups:
        rows = groups.pop()
        ends: Any = lo[rows].view(Many), hi[rows].view(Many)
        try:
            answer = ask(*ends)
        except Differ as differ:
            groups += [rows[~differ.yes], rows[differ.yes]]
        else:
            yield rows, answer
