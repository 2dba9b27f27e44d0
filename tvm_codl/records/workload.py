"""Workload: what is measured, as a canonical key and as numbers.

The key is JSON text: the operator's structure (kind, shapes, types, attributes; no names, no ids) and, for a piece, its
place.  So equal operators of different networks share their measurements, and a record alone is enough to compute the
numbers that a cost model needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.graph import split
from tvm_codl.graph.dtype import bytes_of
from tvm_codl.graph.many import Many
from tvm_codl.graph.names import anchor_of
from tvm_codl.graph.opgraph import Const, Node, Operator, OpGraph, Shape, Tensor
from tvm_codl.graph.piece import assemble
from tvm_codl.graph.rule import window_pads
from tvm_codl.graph.slab import Slab

#: Operators that take an exponential function, or one that costs as much, of each value.
# fmt: off
EXPONENTIAL = frozenset((
    "exp", "sigmoid", "tanh", "erf", "fast_exp", "fast_tanh", "fast_erf", "nn.softmax", "nn.fast_softmax",
    "nn.log_softmax", "log", "power", "sqrt", "rsqrt",
))
# fmt: on


class Cut(msgspec.Struct, frozen=True):
    """Units ``[lo, hi)`` of ``extent`` along the output's ``axis``, its axis number ``index``."""

    axis: str
    index: int
    lo: int
    hi: int
    extent: int


class Value(msgspec.Struct, frozen=True, array_like=True):
    """Shape and type of an input, a weight or an output."""

    shape: Shape
    dtype: str


class Structure(msgspec.Struct, frozen=True):
    """What the key says.  ``cut`` comes last, so that a piece's key begins as its operator's."""

    kind: str
    inputs: tuple[Value, ...]
    consts: tuple[Value, ...]
    outputs: tuple[Value, ...]
    body: tuple[Node, ...]
    flops: int
    cut: Cut | None = None


class Workload(msgspec.Struct, frozen=True):
    """One operator or a piece of it.  ``whole`` is the operator that a piece is of, None for an operator itself.

    Sizes are those of the anchor (the convolution, pooling, ... of the fused operator) in this piece, height and width 1
    if it has none.  Bytes are those of all arguments of the fused operator, ``bytes_data`` of the anchor's first argument
    alone.  ``stride`` and ``dilation`` are along the height.  ``exponentials`` counts values of exponential functions.
    """

    key: str
    kind: str
    anchor: str
    dtype: str
    batch: int
    out_h: int
    out_w: int
    out_c: int
    in_h: int
    in_w: int
    in_c: int
    kernel_h: int
    kernel_w: int
    stride: int
    dilation: int
    groups: int
    flops: int
    bytes_in: int
    bytes_weights: int
    bytes_out: int
    body: int
    stride_w: int = 1
    dilation_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0
    bytes_data: int = 0
    exponentials: int = 0
    cut: Cut | None = None
    whole: Workload | None = None

    def cut_key(self, cut: Cut) -> str:
        """The key of this operator's piece."""
        head = self.key[: self.key.rindex('"cut":')]
        return f'{head}"cut":{msgspec.json.encode(cut).decode()}}}'

    @classmethod
    def of(cls, operator: Operator, graph: OpGraph, axis: str = "", lo: int = 0, hi: int = 0) -> Workload:
        """The operator, or its piece ``[lo, hi)`` along ``axis``.  Raises ``graph.split.NoSplit`` if there is none."""
        return workloads(operator, graph, [(axis, lo, hi)])[0]

    @classmethod
    def from_key(cls, key: str) -> Workload:
        """The workload that a record was made of.  Raises :class:`UserError` for text that is no key."""
        return _from_key(key)


def workloads(operator: Operator, graph: OpGraph, pieces: Iterable[tuple[str, int, int]]) -> list[Workload]:
    """:meth:`Workload.of` for many pieces ``(axis, lo, hi)`` of one operator; axis ``""`` gives the operator."""
    whole, result = describe(operator, graph), []
    for name, lo, hi in pieces:
        axis = split.axis(operator, graph, name) if name else None
        cut = Cut(name, axis.index, lo, hi, axis.extent) if axis else None
        result.append(_piece(whole, operator, graph, cut) if cut else whole)
    return result


@lru_cache(maxsize=8192)
def _from_key(key: str) -> Workload:
    operator, graph, cut = rebuild(key)
    whole = describe(operator, graph)
    if cut is None:
        return whole
    # An axis may have had its name from the neighbours in the network; its number is the operator's own.
    if all(axis.index != cut.index for axis in split.axes(operator, graph).values()):
        raise UserError("a record's workload is a piece that no split rule makes any more", repr(cut))
    return _piece(whole, operator, graph, cut)


def rebuild(key: str) -> tuple[Operator, OpGraph, Cut | None]:
    """A key's operator, a network of it alone, and the key's cut.  Raises :class:`UserError` for text that is no key."""
    try:
        structure = msgspec.json.decode(key, type=Structure)
    except msgspec.DecodeError as error:
        raise UserError("a record's workload is no workload", f"{key[:80]!r}: {error}") from error
    values = structure.inputs + structure.outputs
    tensors = tuple(Tensor(i, f"t{i}", value.shape, value.dtype) for i, value in enumerate(values))
    inputs = tuple(range(len(structure.inputs)))
    outputs = tuple(range(len(inputs), len(values)))
    consts = tuple(Const(f"c{i}", value.shape, value.dtype) for i, value in enumerate(structure.consts))
    operator = Operator(0, structure.kind, structure.kind, inputs, outputs, structure.body, consts, structure.flops)
    return operator, OpGraph(tensors, (operator,), inputs, outputs), structure.cut


def describe(operator: Operator, graph: OpGraph) -> Workload:
    """The operator's workload."""
    structure = Structure(
        operator.kind,
        tuple(Value(graph.tensors[i].shape, graph.tensors[i].dtype) for i in operator.inputs),
        tuple(Value(const.shape, const.dtype) for const in operator.consts),
        tuple(Value(graph.tensors[i].shape, graph.tensors[i].dtype) for i in operator.outputs),
        operator.body,
        operator.flops,
    )
    key = msgspec.json.encode(structure, order="deterministic").decode()
    return _describe(key, split.whole(operator, graph), graph, None, None)


def _piece(whole: Workload, operator: Operator, graph: OpGraph, cut: Cut) -> Workload:
    piece = assemble(operator, graph, Slab(cut.index, cut.lo, cut.hi))
    return _describe(whole.cut_key(cut), piece, graph, cut, whole)


def _describe(key: str, piece: split.Piece, graph: OpGraph, cut: Cut | None, whole: Workload | None) -> Workload:
    body = piece.operator.body
    return Workload(
        key=key,
        kind=piece.operator.kind,
        anchor=body[anchor_of(body)].op,
        dtype=body[-1].dtype,
        cut=cut,
        whole=whole,
        **piece_numbers(piece, graph),
    )


def piece_numbers(piece: split.Piece, graph: OpGraph) -> dict[str, int]:
    """The numbers of a :class:`Workload`, by name, of a piece or of a whole operator.

    Of a piece that stands for many (:func:`.split.pieces`), a number is an array where theirs differ.
    """
    operator, body = piece.operator, piece.operator.body
    node = body[anchor_of(body)]
    layout, data = layout_of(node), _argument(node, 0, piece)
    numbers = {
        "groups": _first(node.attrs.get("groups"), 1),
        "flops": operator.flops,
        "bytes_in": sum(
            bytes_of(s, graph.tensors[i].dtype) for s, i in zip(piece.feed_shapes, operator.inputs, strict=True)
        ),
        "bytes_weights": sum(bytes_of(const.shape, const.dtype) for const in operator.consts),
        "bytes_out": sum(bytes_of(shape, body[-1].dtype) for shape in body[-1].results),
        "bytes_data": bytes_of(data, node.dtype) if data else 0,
        "exponentials": sum(math.prod(n.results[0]) for n in body if n.op in EXPONENTIAL),
        "body": len(body),
    }
    for name, attribute in (("stride", "strides"), ("dilation", "dilation")):
        numbers[name], numbers[f"{name}_w"] = (_first(node.attrs.get(attribute), 1, at) for at in (0, -1))
    out = image(node.results[0], str(node.attrs.get("out_layout") or layout))
    numbers |= zip(("batch", "out_h", "out_w", "out_c"), out, strict=True)
    numbers |= zip(("in_h", "in_w", "in_c"), image(data, layout)[1:], strict=True)
    numbers |= zip(("kernel_h", "kernel_w"), _kernel(node, piece), strict=True)
    numbers |= zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), _pads(node.attrs.get("padding")), strict=True)
    return numbers


def layout_of(node: Node) -> str:
    return str(node.attrs.get("data_layout") or node.attrs.get("layout") or "NHWC")


def image(shape: Shape, layout: str) -> tuple[int, int, int, int]:
    """(batch, height, width, channels); matrices are (rows, 1, 1, columns), stacks (stack, rows, 1, columns)."""
    if len(shape) == 4 and sorted(layout) == sorted("NCHW"):
        batch, height, width, channels = (shape[layout.index(letter)] for letter in "NHWC")
        return batch, height, width, channels
    if len(shape) == 3:
        return shape[0], shape[1], 1, shape[2]
    return math.prod(shape[:-1]), 1, 1, shape[-1] if shape else 1


def _argument(node: Node, index: int, piece: split.Piece) -> Shape:
    if index >= len(node.args):
        return ()
    ref = node.args[index]
    if ref.source == "input":
        return piece.feed_shapes[ref.index]
    if ref.source == "const":
        return piece.operator.consts[ref.index].shape
    return piece.operator.body[ref.index].results[0]


def _kernel(node: Node, piece: split.Piece) -> tuple[int, int]:
    layout, shape = str(node.attrs.get("kernel_layout") or ""), _argument(node, 1, piece)
    if "H" in layout and "W" in layout and len(layout) == len(shape):
        return shape[layout.index("H")], shape[layout.index("W")]
    pool = node.attrs.get("pool_size")
    return _first(pool, 1), _first(pool, 1, -1)


def _first(value: Any, default: int, at: int = 0) -> int:
    number: int | None = (value[at] if value else None) if isinstance(value, (list, tuple)) else value
    return default if number is None else number


def _pads(value: Any) -> tuple[int, int, int, int]:
    """Top, left, bottom, right; zero for what pads otherwise than a window in two dimensions."""
    if isinstance(value, (list, tuple)) and len(value) in (1, 2, 4) and all(isinstance(n, int | Many) for n in value):
        return window_pads(list(value))
    return 0, 0, 0, 0
