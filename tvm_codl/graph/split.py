"""Splitting a fused operator: which axes it has, and the recipe for a piece.

Split rules know single nodes.  Here they are composed backward through an operator's body.  The result is again an
:class:`~.opgraph.Operator`, smaller, with the slices of its inputs and weights beside it.  A planner asks for the numbers
of thousands of pieces: :func:`pieces` and :func:`needs` compute them with arrays (:mod:`.many`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm

import msgspec

from tvm_codl.graph.flops import node_flops
from tvm_codl.graph.many import Integers, Rows, in_groups
from tvm_codl.graph.names import anchor_of, axis_names, layouts
from tvm_codl.graph.opgraph import Const, Node, Operator, OpGraph, Ref, Shape
from tvm_codl.graph.rule import Answer, Case, NoSplit
from tvm_codl.graph.rules import RULES
from tvm_codl.graph.slab import Need, Slab, hull, shape_of

__all__ = ["Axis", "NoSplit", "Piece", "axes", "needs", "piece", "pieces", "whole"]


class Axis(msgspec.Struct, frozen=True):
    """An axis of an operator's output along which it can be split: at multiples of ``granule``, inside ``extent``."""

    name: str
    index: int
    extent: int
    granule: int


class Piece(msgspec.Struct, frozen=True):
    """A part of an operator, as an operator of its own.

    ``operator`` has the original's id and name, and the piece's body: attributes and shapes changed, crops and cuts
    written as ``strided_slice`` nodes.  Its ``inputs`` are tensors of the graph, of which it reads ``feeds`` (one for
    each of its inputs; a tensor that is read at two places is listed twice); ``feed_shapes`` are their shapes.
    Its ``consts`` have the original's keys, of which it holds ``const_parts``.  ``inputs`` tells for each input of
    the *original* operator what is needed of it; an input that is not needed has an empty slab.  ``output`` is the
    part that comes out, or None for the whole.
    """

    operator: Operator
    output: Need
    inputs: tuple[Need, ...]
    feeds: tuple[Need, ...]
    feed_shapes: tuple[Shape, ...]
    const_parts: tuple[Need, ...]

    @property
    def output_shape(self) -> Shape:
        return self.operator.body[-1].results[0]


def whole(operator: Operator, graph: OpGraph) -> Piece:
    """The whole operator, in the form of a piece."""
    shapes = tuple(graph.tensors[tensor].shape for tensor in operator.inputs)
    nothing = (None,) * len(operator.inputs)
    return Piece(operator, None, nothing, nothing, shapes, (None,) * len(operator.consts))


def piece(operator: Operator, graph: OpGraph, axis_name: str, lo: int, hi: int) -> Piece:
    """The piece ``lo <= i < hi`` of the operator's output along the axis of that name.

    Raises NoSplit, with the reason, where the operator has no such axis or it can not be cut there.
    """
    return _piece(operator, graph, Slab(axis(operator, graph, axis_name).index, lo, hi))


def pieces(
    operator: Operator, graph: OpGraph, axis_name: str, lo: Integers, hi: Integers
) -> Iterator[tuple[Rows, Piece]]:
    """The pieces ``[lo[i], hi[i])``, in groups: the numbers ``i`` of a group, and a piece that stands for all of it, with
    :class:`~.many.Many` where its members' numbers differ.

    Raises NoSplit if one of them can not be cut.
    """
    index = axis(operator, graph, axis_name).index
    return in_groups(lambda lo, hi: _piece(operator, graph, Slab(index, lo, hi)), lo, hi)


def needs(
    operator: Operator, graph: OpGraph, axis_name: str, lo: Integers, hi: Integers
) -> Iterator[tuple[Rows, Sequence[Need]]]:
    """``Piece.inputs`` of :func:`pieces`, in groups as well, which is all that the pieces read."""
    index = axis(operator, graph, axis_name).index
    return in_groups(lambda lo, hi: _demands(operator, graph, Slab(index, lo, hi)).inputs, lo, hi)


def axis(operator: Operator, graph: OpGraph, name: str) -> Axis:
    """The axis of that name.  Raises NoSplit where there is none."""
    named = axes(operator, graph).get(name)
    if named is None:
        raise NoSplit(f"{operator.name} has no axis {name!r}")
    return named


def axes(operator: Operator, graph: OpGraph) -> dict[str, Axis]:
    """All axes along which the operator can be split, by name, in the order of the output's axes."""
    known = _memory(graph)
    if operator.id not in known.axes:
        known.axes[operator.id] = (operator, _find_axes(operator, graph, known.layouts))
    asked, found = known.axes[operator.id]
    return found if asked is operator else _find_axes(operator, graph, known.layouts)


class _Memory:
    """What was found out about one graph.  It holds the graph, so that the graph's ``id`` stays its own."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.layouts = layouts(graph)
        self.axes: dict[int, tuple[Operator, dict[str, Axis]]] = {}


_KEPT_GRAPHS = 4
_memories: dict[int, _Memory] = {}


def _memory(graph: OpGraph) -> _Memory:
    # Graphs can not be dictionary keys: their attributes are dicts.  A planner asks about the same graph very often.
    found = _memories.get(id(graph))
    if found is None:
        found = _Memory(graph)
        while len(_memories) >= _KEPT_GRAPHS:
            _memories.pop(next(iter(_memories)), None)
        _memories[id(graph)] = found
    return found


def _find_axes(operator: Operator, graph: OpGraph, known: dict[int, str]) -> dict[str, Axis]:
    if len(operator.outputs) != 1 or len(operator.body[-1].results) != 1:
        return {}
    shape = operator.body[-1].results[0]
    anchor = anchor_of(operator.body)
    layout = known.get(operator.outputs[0]) if len(shape) == 4 else None
    found: dict[str, Axis] = {}
    for index, extent in enumerate(shape):
        try:
            granule = _granule(operator, graph, index, extent)
            demand = _demands(operator, graph, Slab(index, 0, extent)).nodes[anchor]
        except NoSplit:
            continue
        if demand is None:
            continue
        node = operator.body[anchor]
        # The layout is known for the output; the anchor's own axis has that name only if it is the same one.
        name = axis_names(node, node.results[0], layout if demand.axis == index else None)[demand.axis]
        if name.startswith("axis"):
            name = f"axis{index}"
        if name != "width" and name not in found:
            found[name] = Axis(name, index, extent, granule)
    return found


#: Where a stride is wider than a window, whether a place can be cut depends on its remainder by the stride.
LOOKS = 8


def _granule(operator: Operator, graph: OpGraph, index: int, extent: int) -> int:
    """The smallest step for cuts of an axis; raises NoSplit if there is none."""
    granule = 1
    while granule < extent:
        last = (extent - 1) // granule * granule
        try:
            for at in sorted({*range(granule, last, granule)[:LOOKS], last}):
                _demands(operator, graph, Slab(index, 0, at))
                _demands(operator, graph, Slab(index, at, extent))
            return granule
        except NoSplit as error:
            larger = lcm(granule, error.granule)
            if larger == granule:
                raise
            granule = larger
    raise NoSplit("an axis of a single unit")


class _Demands(msgspec.Struct, frozen=True):
    """What a part of an operator's output takes.

    ``nodes`` has for each body node what is wanted of it, an empty slab for nothing, and ``answers`` what its rule says
    (None: computed whole, or not at all).  ``inputs`` has what all nodes read of each of the operator's inputs.
    """

    nodes: list[Need]
    answers: list[Answer | None]
    inputs: list[Need]


def _demands(operator: Operator, graph: OpGraph, want: Slab) -> _Demands:
    """Asks the rules backward along the body.  Raises NoSplit if one refuses, or if there is no such part."""
    extent = operator.body[-1].results[0][want.axis]
    if not 0 <= want.lo < want.hi <= extent:
        raise NoSplit(f"{want.lo}..{want.hi} is no part of an axis of {extent}")
    body, anchor = operator.body, anchor_of(operator.body)
    wanted: list[list[Need]] = [[] for _ in body]
    wanted[-1].append(want)
    read: list[list[Need]] = [[] for _ in operator.inputs]
    nodes: list[Need] = [None] * len(body)
    answers: list[Answer | None] = [None] * len(body)
    for index in range(len(body) - 1, -1, -1):
        node = body[index]
        need = nodes[index] = _hull(wanted[index])
        if need is None:
            if index == anchor:
                raise NoSplit(f"every piece would compute all of {node.op}")
            args: Sequence[Need] = (None,) * len(node.args)
        elif need.empty:
            continue
        else:
            answer = answers[index] = _ask(operator, graph, node, need)
            args = answer.args
        for ref, arg in zip(node.args, args, strict=True):
            if ref.source == "node":
                wanted[ref.index].append(arg)
            elif ref.source == "input" and (arg is None or not arg.empty):
                read[ref.index].append(arg)
    return _Demands(nodes, answers, [_hull(parts) for parts in read])


def _hull(parts: Sequence[Need]) -> Need:
    return hull(parts) if parts else Slab(0, 0, 0)


def _ask(operator: Operator, graph: OpGraph, node: Node, need: Slab) -> Answer:
    row = RULES.get(node.op)
    if row is None or len(node.results) != 1:
        raise NoSplit(f"{node.op} has no split rule")
    return row.split(Case(node.op, node.attrs, arg_shapes(operator, node, graph), node.results[0]), need)


def arg_shapes(operator: Operator, node: Node, graph: OpGraph) -> tuple[Shape, ...]:
    """The shapes of a node's arguments, in the whole operator."""
    return tuple(
        graph.tensors[operator.inputs[ref.index]].shape
        if ref.source == "input"
        else operator.consts[ref.index].shape
        if ref.source == "const"
        else operator.body[ref.index].results[0]
        for ref in node.args
    )


def _piece(operator: Operator, graph: OpGraph, want: Slab) -> Piece:
    return _Assembly(operator, graph).piece(want, _demands(operator, graph, want))


class _Assembly:
    """Builds the piece's operator node by node."""

    def __init__(self, operator: Operator, graph: OpGraph) -> None:
        self.original, self.graph = operator, graph
        self.body: list[Node] = []
        self.flops = 0
        self.made: dict[int, tuple[Ref, Need]] = {}
        # Lists, not dicts: what stands for many cuts has no hash.
        self.feeds: list[tuple[int, Need]] = []
        self.consts: list[tuple[int, Need]] = []

    def piece(self, want: Slab, demands: _Demands) -> Piece:
        operator = self.original
        for index, (node, need, answer) in enumerate(zip(operator.body, demands.nodes, demands.answers, strict=True)):
            if need is None or not need.empty:
                self._add(index, node, need, answer)
        shapes = tuple(self._tensor_shape(index, need) for index, need in self.feeds)
        smaller = Operator(
            id=operator.id,
            name=operator.name,
            kind=operator.kind,
            inputs=tuple(operator.inputs[index] for index, _ in self.feeds),
            outputs=operator.outputs,
            body=tuple(self.body),
            consts=tuple(self._const(index, need) for index, need in self.consts),
            flops=self.flops,
        )
        return Piece(
            operator=smaller,
            output=want,
            inputs=tuple(_hull([n for at, n in self.feeds if at == index]) for index in range(len(operator.inputs))),
            feeds=tuple(need for _, need in self.feeds),
            feed_shapes=shapes,
            const_parts=tuple(need for _, need in self.consts),
        )

    def _add(self, index: int, node: Node, need: Need, answer: Answer | None) -> None:
        needs = (None,) * len(node.args) if answer is None else answer.args
        args = [self._take(ref, arg) for ref, arg in zip(node.args, needs, strict=True) if arg is None or not arg.empty]
        attrs = node.attrs if answer is None or not answer.attrs else {**node.attrs, **answer.attrs}
        makes = need if answer is None or answer.makes is None else answer.makes
        ref, shape = self._append(node.op, attrs, args, shape_of(node.results[0], makes), node.dtype)
        if makes != need and need is not None:
            ref, _ = self._cut((ref, shape), need.within(makes), node.dtype)
        self.made[index] = (ref, need)

    def _append(
        self, op: str, attrs: dict[str, object], args: Sequence[tuple[Ref, Shape]], shape: Shape, dtype: str
    ) -> tuple[Ref, Shape]:
        node = Node(op, attrs, tuple(ref for ref, _ in args), (shape,), dtype)
        self.flops += node_flops(node, tuple(shape for _, shape in args))
        self.body.append(node)
        return Ref("node", len(self.body) - 1), shape

    def _cut(self, source: tuple[Ref, Shape], part: Slab, dtype: str) -> tuple[Ref, Shape]:
        attrs: dict[str, object] = {
            "begin": [part.lo],
            "end": [part.hi],
            "strides": [1],
            "axes": [part.axis],
            "slice_mode": "end",
        }
        return self._append("strided_slice", attrs, [source], shape_of(source[1], part), dtype)

    def _take(self, ref: Ref, need: Need) -> tuple[Ref, Shape]:
        """An argument's ref in the piece, and its shape."""
        if ref.source == "input":
            need = _plain(need, self.graph.tensors[self.original.inputs[ref.index]].shape)
            return Ref("input", _place(self.feeds, (ref.index, need))), self._tensor_shape(ref.index, need)
        if ref.source == "const":
            need = _plain(need, self.original.consts[ref.index].shape)
            return Ref("const", _place(self.consts, (ref.index, need))), self._const(ref.index, need).shape
        node = self.original.body[ref.index]
        made, part = self.made[ref.index]
        have = shape_of(node.results[0], part)
        if need is None or need == part:
            return made, have
        return self._cut((made, have), need.within(part), node.dtype)

    def _tensor_shape(self, index: int, need: Need) -> Shape:
        return shape_of(self.graph.tensors[self.original.inputs[index]].shape, need)

    def _const(self, index: int, need: Need) -> Const:
        const = self.original.consts[index]
        return Const(const.key, shape_of(const.shape, need), const.dtype)


def _place(parts: list[tuple[int, Need]], part: tuple[int, Need]) -> int:
    """The number of a part, which is appended if it is new."""
    if part not in parts:
        parts.append(part)
    return parts.index(part)


def _plain(need: Need, shape: Shape) -> Need:
    """The whole is written as None, also where a slab happens to cover it."""
    return None if need is not None and need.lo == 0 and need.hi == shape[need.axis] else need
