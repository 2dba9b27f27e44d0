"""Piece: a part of a fused operator, as an operator of its own, with the slices of its inputs and weights."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tvm_codl.graph.demand import Demand, demand
from tvm_codl.graph.flops import node_flops
from tvm_codl.graph.opgraph import Const, Node, Operator, OpGraph, Ref, Shape
from tvm_codl.graph.rule import Answer
from tvm_codl.graph.slab import Need, Slab, hull, shape_of


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


def assemble(operator: Operator, graph: OpGraph, want: Slab) -> Piece:
    """The piece that makes ``want`` of the output.  Raises NoSplit where there is none."""
    return _Assembly(operator, graph).piece(want, demand(operator, graph, want))


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

    def piece(self, want: Slab, demands: Demand) -> Piece:
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
            inputs=tuple(
                hull([need for at, need in self.feeds if at == index]) for index in range(len(operator.inputs))
            ),
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
    if need is None:
        return None
    covers = (need.lo == 0) & (need.hi == shape[need.axis])
    return None if covers else need
