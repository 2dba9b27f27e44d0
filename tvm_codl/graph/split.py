"""Splitting a fused operator: which axes it has, and its pieces.

A planner asks for the numbers of thousands of pieces: :func:`pieces` and :func:`needs` compute them with arrays
(:mod:`.many`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import lcm

import msgspec
import numpy as np

from tvm_codl.graph.demand import demand
from tvm_codl.graph.many import Integers, Rows, in_groups
from tvm_codl.graph.names import anchor_of, axis_names, layouts
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.graph.piece import Piece, assemble, whole
from tvm_codl.graph.rule import NoSplit
from tvm_codl.graph.slab import Need, Slab

__all__ = ["Axis", "NoSplit", "Piece", "axes", "needs", "piece", "pieces", "whole"]


class Axis(msgspec.Struct, frozen=True):
    """An axis of an operator's output along which it can be split: at multiples of ``granule``, inside ``extent``."""

    name: str
    index: int
    extent: int
    granule: int


def piece(operator: Operator, graph: OpGraph, axis_name: str, lo: int, hi: int) -> Piece:
    """The piece ``lo <= i < hi`` of the operator's output along the axis of that name.

    Raises NoSplit, with the reason, where the operator has no such axis or it can not be cut there.
    """
    return assemble(operator, graph, Slab(axis(operator, graph, axis_name).index, lo, hi))


def pieces(operator: Operator, graph: OpGraph, axis: int, lo: Integers, hi: Integers) -> Iterator[tuple[Rows, Piece]]:
    """The pieces ``[lo[i], hi[i])`` along axis number ``axis`` of the output, in groups: the numbers ``i`` of a group, and a
    piece that stands for all of it, with :class:`~.many.Many` where its members' numbers differ.

    Raises NoSplit if one of them can not be cut.
    """
    return in_groups(lambda lo, hi: assemble(operator, graph, Slab(axis, lo, hi)), lo, hi)


def needs(
    operator: Operator, graph: OpGraph, axis: int, lo: Integers, hi: Integers
) -> Sequence[tuple[Rows, Sequence[Need]]]:
    """``Piece.inputs`` of :func:`pieces`, in groups as well, which is all that the pieces read."""
    memory = _memory(graph)
    return memory.needs(memory.structure(operator), axis, lo.tobytes(), hi.tobytes())


def axis(operator: Operator, graph: OpGraph, name: str) -> Axis:
    """The axis of that name.  Raises NoSplit where there is none."""
    named = axes(operator, graph).get(name)
    if named is None:
        raise NoSplit(f"{operator.name} has no axis {name!r}")
    return named


def axes(operator: Operator, graph: OpGraph) -> dict[str, Axis]:
    """All axes along which the operator can be split, by name, in the order of the output's axes."""
    return _memory(graph).axes(operator)


def structure(operator: Operator, graph: OpGraph) -> bytes:
    """All of the operator but names.  Networks repeat blocks: many operators have the same."""
    return _memory(graph).structure(operator)


class _Memory:
    """What is asked again and again of one graph.  It holds the graph, so that no other graph gets the same ``id``."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.needs = lru_cache(_KEPT_NEEDS)(self._needs)
        self._layouts = layouts(graph)
        self._axes: dict[tuple[bytes, str | None], dict[str, Axis]] = {}
        self._structures: dict[int, tuple[Operator, bytes]] = {}
        self._like: dict[bytes, Operator] = {}

    def axes(self, operator: Operator) -> dict[str, Axis]:
        layout = self._layouts.get(operator.outputs[0])
        like = self.structure(operator), layout
        if like not in self._axes:
            self._axes[like] = _find_axes(operator, self.graph, layout)
        return self._axes[like]

    def structure(self, operator: Operator) -> bytes:
        asked, structure = self._structures.get(operator.id, (None, b""))
        if asked is not operator:
            inputs = [(tensor.shape, tensor.dtype) for tensor in map(self.graph.tensors.__getitem__, operator.inputs)]
            consts = [(const.shape, const.dtype) for const in operator.consts]
            structure = msgspec.msgpack.encode((operator.kind, operator.body, inputs, consts, operator.flops))
            self._structures[operator.id] = operator, structure
            self._like.setdefault(structure, operator)
        return structure

    def _needs(self, structure: bytes, axis: int, lo: bytes, hi: bytes) -> list[tuple[Rows, Sequence[Need]]]:
        operator = self._like[structure]
        ends = (np.frombuffer(end, dtype=np.int64) for end in (lo, hi))
        return list(in_groups(lambda lo, hi: demand(operator, self.graph, Slab(axis, lo, hi)).inputs, *ends))


#: Answers of :func:`needs` that are kept for a graph.
_KEPT_NEEDS = 4096
_KEPT_GRAPHS = 4
_memories: dict[int, _Memory] = {}


def _memory(graph: OpGraph) -> _Memory:
    # Graphs can not be dictionary keys: their attributes are dicts.  A planner asks about the same graph very often.
    memory = _memories.get(id(graph))
    if memory is None:
        memory = _Memory(graph)
        while len(_memories) >= _KEPT_GRAPHS:
            _memories.pop(next(iter(_memories)), None)
        _memories[id(graph)] = memory
    return memory


def _find_axes(operator: Operator, graph: OpGraph, layout: str | None) -> dict[str, Axis]:
    """``layout`` is the output's."""
    if len(operator.outputs) != 1 or len(operator.body[-1].results) != 1:
        return {}
    shape = operator.body[-1].results[0]
    anchor = anchor_of(operator.body)
    by_name: dict[str, Axis] = {}
    for index, extent in enumerate(shape):
        try:
            granule = _granule(operator, graph, index, extent)
            need = demand(operator, graph, Slab(index, 0, extent)).nodes[anchor]
        except NoSplit:
            continue
        if need is None:
            continue
        node = operator.body[anchor]
        # The output's layout names the anchor's own axis only if that is the same one.
        own = layout if need.axis == index and len(shape) == 4 else None
        name = axis_names(node, node.results[0], own)[need.axis]
        if name.startswith("axis"):
            name = f"axis{index}"
        if name != "width" and name not in by_name:
            by_name[name] = Axis(name, index, extent, granule)
    return by_name


#: Cuts to try: where a stride is wider than a window, the remainder by the stride decides whether a place can be cut.
LOOKS = 8


def _granule(operator: Operator, graph: OpGraph, index: int, extent: int) -> int:
    """The smallest step for cuts of an axis; raises NoSplit if there is none."""
    granule = 1
    while granule < extent:
        last = (extent - 1) // granule * granule
        try:
            for at in sorted({*range(granule, last, granule)[:LOOKS], last}):
                demand(operator, graph, Slab(index, 0, at))
                demand(operator, graph, Slab(index, at, extent))
            return granule
        except NoSplit as error:
            larger = lcm(granule, error.granule)
            if larger == granule:
                raise
            granule = larger
    raise NoSplit("an axis of a single unit")
