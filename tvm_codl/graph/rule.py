"""What a split rule is asked and what it answers, and the table that rules are entered in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tvm_codl.graph.many import lower, upper
from tvm_codl.graph.opgraph import Shape
from tvm_codl.graph.slab import Need, Slab


class NoSplit(Exception):
    """The axis, or this place on it, can not be split.

    ``granule`` > 1 says that multiples of it can.
    """

    def __init__(self, reason: str, granule: int = 1) -> None:
        super().__init__(reason)
        self.granule = granule


class Case(msgspec.Struct, frozen=True):
    """One node, as a rule sees it: shapes of the arguments and of the single result."""

    op: str
    attrs: dict[str, Any]
    args: tuple[Shape, ...]
    result: Shape


class Answer(msgspec.Struct, frozen=True):
    """What makes a part of a node's result.

    ``args`` has one need for each argument, halos included; ``attrs`` holds the attributes that change.  ``makes``
    is the part of the result that comes out, where it is more than was wanted and has to be cropped.
    """

    args: tuple[Need, ...]
    attrs: dict[str, Any] = {}
    makes: Slab | None = None


Rule = Callable[[Case, Slab], Answer]

#: How much an operator weighs: the heaviest of a fused operator is its anchor.
ELEMENTWISE, MOVING, REDUCING, HEAVY = range(4)


class Row(msgspec.Struct, frozen=True):
    """What the table says of an operator: its rule, its weight, and its flops (for each value of the result, or in all)."""

    split: Rule
    weight: int
    flops: int | Callable[[Case], int]


RULES: dict[str, Row] = {}


def rule(*operators: str, weight: int = ELEMENTWISE, flops: int | Callable[[Case], int] = 0) -> Callable[[Rule], Rule]:
    """Enters a function into the table as the split rule of ``operators``, with their weight and flops.

    The function answers for one cut.  It is also called with many at once (:mod:`.many`), so it must not change a number
    in place, nor convert it (``int(want.lo)``).
    """

    def enter(split: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, Row(split, weight, flops)))
        return split

    return enter


def axis_of(axis: int, rank: int) -> int:
    """A possibly negative axis, counted from the front."""
    return axis + rank if axis < 0 else axis


def at_multiples(want: Slab, granule: int, reason: str) -> None:
    """Refuses a part that does not start and end at multiples of ``granule``."""
    if want.lo % granule or want.hi % granule:
        raise NoSplit(reason, granule)


def letters(layout: str, rank: int) -> str:
    """``layout`` checked: a letter an axis, no blocked axes (``NCHW4c``)."""
    if len(layout) != rank or not layout.isalpha() or not layout.isupper():
        raise NoSplit(f"layout {layout!r} is blocked")
    return layout


def window_pads(padding: list[int]) -> tuple[int, int, int, int]:
    """Relay's 1, 2 or 4 numbers of window padding as top, left, bottom, right."""
    if len(padding) == 1:
        return (padding[0],) * 4
    if len(padding) == 2:
        return padding[0], padding[1], padding[0], padding[1]
    top, left, bottom, right = padding
    return top, left, bottom, right


def window_rows(want: Slab, rows: int, axis: int, kernel: int, stride: int, before: int) -> tuple[Slab, int, int]:
    """Input rows that output rows ``want`` of a sliding window read, and the padding left over before and after.

    ``kernel`` is the dilated one.  Padding remains only where the window really hangs over the border.
    """
    first = want.lo * stride - before
    last = (want.hi - 1) * stride - before + kernel
    lo, hi = upper(first, 0), lower(last, rows)
    if lo >= hi:
        raise NoSplit("the piece would read nothing but padding")
    return Slab(axis, lo, hi), lo - first, last - hi
