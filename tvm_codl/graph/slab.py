"""Slab: a contiguous part of a tensor along one axis.  ``None`` in its place means the whole tensor."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tvm_codl.graph.many import lower, upper


class Slab(msgspec.Struct, frozen=True):
    """Indices ``lo <= i < hi`` of ``axis``, everything of the other axes.  ``lo == hi``: nothing is needed.

    With :class:`~.many.Many` for ``lo`` and ``hi``: as many slabs, of one axis.
    """

    axis: int
    lo: int
    hi: int

    @property
    def extent(self) -> int:
        return self.hi - self.lo

    @property
    def empty(self) -> bool:
        return self.hi <= self.lo

    def within(self, outer: Slab | None) -> Slab:
        """The same part in coordinates of ``outer``, which contains it.

        Raises ValueError where it does not.
        """
        if outer is None:
            return self
        if outer.axis != self.axis or self.lo < outer.lo or self.hi > outer.hi:
            raise ValueError(f"{self} is not within {outer}")
        return Slab(self.axis, self.lo - outer.lo, self.hi - outer.lo)

    def inside(self, outer: Slab) -> bool:
        return self.axis == outer.axis and outer.lo <= self.lo and self.hi <= outer.hi


Need = Slab | None
"""What of a tensor is needed: a part, an empty part, or (None) the whole."""


def shape_of(shape: tuple[int, ...], need: Need) -> tuple[int, ...]:
    """The shape of the part ``need`` of a tensor of ``shape``."""
    if need is None:
        return shape
    return (*shape[: need.axis], need.extent, *shape[need.axis + 1 :])


def outermost(shape: tuple[int, ...]) -> int:
    """The axis along which a part of a tensor in its natural order is contiguous: the first with more than one index."""
    return next((axis for axis, extent in enumerate(shape) if extent > 1), 0)


def hull(needs: Sequence[Need]) -> Need:
    """The smallest part that contains all ``needs``: one slab if they share an axis, else the whole.

    Empty parts count for nothing; if all are empty, or there are none, so is the hull.
    """
    if len(needs) == 1:
        return needs[0]
    result: Slab | None = None
    nothing = Slab(0, 0, 0)
    for need in needs:
        if need is None:
            return None
        if need.empty:
            nothing = need
        elif result is None:
            result = need
        elif result.axis != need.axis:
            return None
        else:
            result = Slab(need.axis, lower(result.lo, need.lo), upper(result.hi, need.hi))
    return nothing if result is None else result
