"""Pieces: the workloads of many pieces of a network's operators, with their numbers in one array.

A planner asks about thousands of pieces at once.  Their numbers are computed with arrays (:mod:`tvm_codl.graph.many`),
and equal those of :class:`Workload`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, overload

import msgspec
import numpy as np

from tvm_codl.graph import split
from tvm_codl.graph.many import Integers
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.records.workload import Cut, Workload, describe, piece_numbers, rebuild, workloads

#: The numbers of a :class:`Workload`, in the order of :func:`numbers_of`'s columns.
NUMBERS = tuple(field.name for field in msgspec.structs.fields(Workload) if field.type is int)

#: The ends of two pieces.
Halves = tuple[tuple[int, int], tuple[int, int]]


class _Group(msgspec.Struct, frozen=True):
    """Pieces ``[lo[i], hi[i])`` along one axis of an operator, by its number; or repetitions of the operator (no axis)."""

    operator: int
    axis: split.Axis | None
    lo: Any
    hi: Any
    numbers: Any


class Pieces(Sequence[Workload]):
    """A sequence of workloads of one network.

    ``numbers`` has shape (pieces, len(NUMBERS)); ``wholes`` are the operators, ``whole_of`` says which one a piece is
    of; ``axes``, ``sizes`` and ``extents`` say which part of it (axis ``""``: the whole operator).
    """

    def __init__(self, graph: OpGraph, like: Pieces | None = None) -> None:
        """``like``: pieces of the same network, whose operators need not be described again."""
        self.graph = graph
        self.wholes: list[Workload] = [] if like is None else list(like.wholes)
        self._operators: list[Operator] = [] if like is None else list(like._operators)
        self._place: dict[int, int] = {} if like is None else dict(like._place)
        self._alike: dict[bytes, Workload] = {}
        self._groups: list[_Group] = []

    def add(self, operator: Operator, axis: str = "", lo: Sequence[int] = (0,), hi: Sequence[int] = (1,)) -> None:
        """Appends the operator, or its pieces ``[lo[i], hi[i])`` along ``axis``; :class:`split.NoSplit` if it has none."""
        place = self._describe(operator)
        los, his = np.asarray(lo, dtype=np.int64), np.asarray(hi, dtype=np.int64)
        if not axis:
            numbers = np.tile(numbers_of([self.wholes[place]]), (len(los), 1))
            self._groups.append(_Group(place, None, los * 0, los * 0 + 1, numbers))
            return
        cut = split.axis(operator, self.graph, axis)
        self._groups.append(_Group(place, cut, los, his, _numbers(self.wholes[place], cut, los, his)))

    def _describe(self, operator: Operator) -> int:
        place = self._place.get(operator.id)
        if place is None:
            place = self._place[operator.id] = len(self.wholes)
            like = split.structure(operator, self.graph)
            if like not in self._alike:
                self._alike[like] = describe(operator, self.graph)
            self.wholes.append(self._alike[like])
            self._operators.append(operator)
        return place

    def __len__(self) -> int:
        return sum(len(group.lo) for group in self._groups)

    @overload
    def __getitem__(self, index: int) -> Workload: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Workload]: ...

    def __getitem__(self, index: int | slice) -> Workload | Sequence[Workload]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        for group in self._groups:
            if 0 <= at < len(group.lo):
                return self._workload(group, at)
            at -= len(group.lo)
        raise IndexError(index)

    def __iter__(self) -> Iterator[Workload]:
        return (self._workload(group, at) for group in self._groups for at in range(len(group.lo)))

    def _workload(self, group: _Group, at: int) -> Workload:
        if group.axis is None:
            return self.wholes[group.operator]
        piece = group.axis.name, int(group.lo[at]), int(group.hi[at])
        return workloads(self._operators[group.operator], self.graph, [piece])[0]

    @property
    def numbers(self) -> Integers:
        return np.concatenate([np.zeros((0, len(NUMBERS)), dtype=np.int64), *(group.numbers for group in self._groups)])

    @property
    def whole_of(self) -> list[int]:
        return [group.operator for group in self._groups for _ in range(len(group.lo))]

    @property
    def axes(self) -> list[str]:
        return [name for group in self._groups for name in [group.axis.name if group.axis else ""] * len(group.lo)]

    @property
    def sizes(self) -> Integers:
        """Units along the cut axis; 1 for a whole operator."""
        return np.array([size for group in self._groups for size in (group.hi - group.lo).tolist()], dtype=np.int64)

    @property
    def extents(self) -> Integers:
        """The cut axis's units in the whole operator; 1 for a whole operator."""
        extents = ([group.axis.extent if group.axis else 1] * len(group.lo) for group in self._groups)
        return np.array([extent for group in extents for extent in group], dtype=np.int64)

    @property
    def keys(self) -> list[str]:
        """The canonical keys, as :attr:`Workload.key`."""
        keys: list[str] = []
        for group in self._groups:
            whole, axis = self.wholes[group.operator], group.axis
            if axis is None:
                keys += [whole.key] * len(group.lo)
                continue
            # The text is the same for all of them, but for the ends.
            text = whole.cut_key(Cut(axis.name, axis.index, -1, -2, axis.extent))
            head, tail = text[: text.rindex("-1")], text[text.rindex("-2") + 2 :]
            middle = text[len(head) + 2 : -len(tail) - 2]
            keys += [f"{head}{a}{middle}{b}{tail}" for a, b in zip(group.lo.tolist(), group.hi.tolist(), strict=True)]
        return keys


def add_halves(first: Pieces, second: Pieces, operator: Operator, axis: str, halves: Sequence[Halves]) -> None:
    """Appends the operator's pieces along ``axis``: of each pair one to ``first`` and one to ``second``, both of one
    network.  The pieces of a pair may overlap."""
    cut, ends = split.axis(operator, first.graph, axis), np.array(halves, dtype=np.int64).reshape(-1, 2, 2)
    lo, hi = ends.transpose(2, 1, 0).reshape(2, -1)
    places, n = (first._describe(operator), second._describe(operator)), len(ends)
    numbers = _numbers(first.wholes[places[0]], cut, lo, hi)
    for part, place, rows in zip((first, second), places, (slice(n), slice(n, None)), strict=True):
        part._groups.append(_Group(place, cut, lo[rows], hi[rows], numbers[rows]))


def _numbers(whole: Workload, axis: split.Axis, lo: Integers, hi: Integers) -> Integers:
    return _kept_numbers(whole.key, axis.index, lo.tobytes(), hi.tobytes())


@lru_cache(maxsize=4096)
def _kept_numbers(key: str, axis: int, lo: bytes, hi: bytes) -> Integers:
    """Kept, since networks repeat blocks, and are planned several times."""
    operator, graph, _ = rebuild(key)
    los, his = (np.frombuffer(end, dtype=np.int64) for end in (lo, hi))
    numbers = np.empty((len(los), len(NUMBERS)), dtype=np.int64)
    for rows, piece in split.pieces(operator, graph, axis, los, his):
        named = piece_numbers(piece, graph)
        columns = np.empty((len(NUMBERS), len(rows)), dtype=np.int64)
        for column, name in zip(columns, NUMBERS, strict=True):
            column[:] = named[name]
        numbers[rows] = columns.T
    numbers.flags.writeable = False
    return numbers


def numbers_of(workloads: Sequence[Workload]) -> Integers:
    """Shape (workloads, len(NUMBERS))."""
    return np.array([[getattr(w, name) for name in NUMBERS] for w in workloads], dtype=np.int64).reshape(
        len(workloads), len(NUMBERS)
    )
