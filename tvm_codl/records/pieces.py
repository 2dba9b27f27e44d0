"""Pieces: many pieces of a network's operators, with their numbers computed by numpy instead of one by one.

A planner asks about thousands of pieces at once.  Where an operator is a convolution, a pooling, a product or
element-wise, with only element-wise operators after it, each number of a piece is plain arithmetic on its two ends;
other operators' pieces are described one by one.  Either way the numbers equal those of :class:`Workload`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import overload

import msgspec
import numpy as np

from tvm_codl.graph import split
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.records import workload as one_by_one
from tvm_codl.records.arithmetic import NUMBERS, Integers, numbers_along
from tvm_codl.records.workload import Cut, Workload


class Pieces(Sequence[Workload]):
    """A sequence of workloads of one network.

    ``numbers`` has shape (pieces, len(NUMBERS)); ``wholes`` are the operators, ``whole_of`` says which one a piece is
    of; ``axes``, ``lo``, ``hi``, ``extents`` say which part of it (axis ``""``: the whole operator).
    """

    def __init__(self, graph: OpGraph, like: Pieces | None = None) -> None:
        """``like``: pieces of the same network, whose operators need not be described again."""
        self.graph = graph
        self.wholes: list[Workload] = [] if like is None else list(like.wholes)
        self._operators: list[Operator] = [] if like is None else list(like._operators)
        self._place: dict[int, int] = {} if like is None else dict(like._place)
        self._groups: list[tuple[int, str, Integers, Integers, Integers, int]] = []

    def add(self, operator: Operator, axis: str = "", lo: Sequence[int] = (0,), hi: Sequence[int] = (0,)) -> None:
        """Appends the operator, or its pieces ``[lo[i], hi[i])`` along ``axis``; :class:`split.NoSplit` if it has none."""
        place = self._described(operator)
        los, his = np.asarray(lo, dtype=np.int64), np.asarray(hi, dtype=np.int64)
        if not axis:
            numbers = np.tile(numbers_of([self.wholes[place]]), (len(los), 1))
            self._groups.append((place, "", los * 0, his * 0, numbers, 0))
            return
        found = _axis(operator, self.graph, axis)
        numbers = _numbers(operator, self.graph, self.wholes[place], found, los, his)
        self._groups.append((place, axis, los, his, numbers, found.extent))

    def _described(self, operator: Operator) -> int:
        place = self._place.get(operator.id)
        if place is None:
            place = self._place[operator.id] = len(self.wholes)
            self.wholes.append(one_by_one.described(operator, self.graph))
            self._operators.append(operator)
        return place

    def __len__(self) -> int:
        return sum(len(group[2]) for group in self._groups)

    @overload
    def __getitem__(self, index: int) -> Workload: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Workload]: ...

    def __getitem__(self, index: int | slice) -> Workload | Sequence[Workload]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        for place, axis, lo, hi, _, _ in self._groups:
            if 0 <= at < len(lo):
                return self._workload(place, axis, int(lo[at]), int(hi[at]))
            at -= len(lo)
        raise IndexError(index)

    def _workload(self, place: int, axis: str, lo: int, hi: int) -> Workload:
        if not axis:
            return self.wholes[place]
        return one_by_one.workloads(self._operators[place], self.graph, [(axis, lo, hi)])[0]

    @property
    def numbers(self) -> Integers:
        if not self._groups:
            return np.zeros((0, len(NUMBERS)), dtype=np.int64)
        return np.concatenate([group[4] for group in self._groups])

    @property
    def whole_of(self) -> list[int]:
        return [group[0] for group in self._groups for _ in range(len(group[2]))]

    @property
    def axes(self) -> list[str]:
        return [group[1] for group in self._groups for _ in range(len(group[2]))]

    @property
    def sizes(self) -> Integers:
        """Units along the cut axis; 1 for a whole operator."""
        return np.array([s for g in self._groups for s in ((g[3] - g[2]) if g[1] else g[2] * 0 + 1).tolist()], np.int64)

    @property
    def extents(self) -> Integers:
        """The cut axis's units in the whole operator; 1 for a whole operator."""
        return np.array([e for g in self._groups for e in [g[5] or 1] * len(g[2])], np.int64)

    @property
    def keys(self) -> list[str]:
        """The canonical keys, as :attr:`Workload.key`."""
        found: list[str] = []
        for place, axis, lo, hi, _, extent in self._groups:
            whole = self.wholes[place]
            if not axis:
                found += [whole.key] * len(lo)
                continue
            index = split.axes(self._operators[place], self.graph)[axis].index
            head = whole.key[: whole.key.rindex('"cut":')] + '"cut":'
            # The text of a cut without its ends is the same for all of them.
            text = msgspec.json.encode(Cut(axis, index, -1, -2, extent)).decode()
            before, rest = text.split("-1", 1)
            middle, after = rest.split("-2", 1)
            start = head + before
            end = after + "}"
            found += [f"{start}{a}{middle}{b}{end}" for a, b in zip(lo.tolist(), hi.tolist(), strict=True)]
        return found


def add_halves(
    first: Pieces,
    second: Pieces,
    operator: Operator,
    axis: str,
    cuts: Sequence[int],
    starts: Sequence[int] | None = None,
) -> None:
    """Appends what lies before each cut to ``first`` and what lies behind it to ``second``, both of one network.

    ``starts``: where the second pieces begin instead, for pieces that overlap.
    """
    found, at = _axis(operator, first.graph, axis), np.asarray(cuts, dtype=np.int64)
    start = at if starts is None else np.asarray(starts, dtype=np.int64)
    place, other = first._described(operator), second._described(operator)
    lo, hi = np.concatenate([at * 0, start]), np.concatenate([at, at * 0 + found.extent])
    numbers, n = _numbers(operator, first.graph, first.wholes[place], found, lo, hi), len(at)
    first._groups.append((place, axis, lo[:n], hi[:n], numbers[:n], found.extent))
    second._groups.append((other, axis, lo[n:], hi[n:], numbers[n:], found.extent))


def _axis(operator: Operator, graph: OpGraph, name: str) -> split.Axis:
    found = split.axes(operator, graph).get(name)
    if found is None:
        raise split.NoSplit(f"{operator.name} has no axis {name!r}")
    return found


def _numbers(
    operator: Operator, graph: OpGraph, whole: Workload, axis: split.Axis, lo: Integers, hi: Integers
) -> Integers:
    numbers = numbers_along(operator, graph, whole, axis.index, lo, hi)
    if numbers is None:
        known = _rows_of(whole.key, axis.index)
        ends = list(zip(lo.tolist(), hi.tolist(), strict=True))
        missing = [end for end in dict.fromkeys(ends) if end not in known]
        rows = numbers_of(one_by_one.workloads(operator, graph, [(axis.name, *end) for end in missing]))
        known.update(zip(missing, rows, strict=True))
        numbers = np.array([known[end] for end in ends], dtype=np.int64).reshape(len(ends), len(NUMBERS))
    return numbers


@lru_cache(maxsize=1024)
def _rows_of(key: str, index: int) -> dict[tuple[int, int], Integers]:
    """The numbers that are known of an operator's pieces along an axis; networks repeat their blocks."""
    return {}


def numbers_of(workloads: Sequence[Workload]) -> Integers:
    """Shape (workloads, len(NUMBERS))."""
    return np.array([[getattr(w, name) for name in NUMBERS] for w in workloads], dtype=np.int64).reshape(
        len(workloads), len(NUMBERS)
    )
