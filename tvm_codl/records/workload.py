"""Workload: what a measurement is a measurement of, as a canonical key and as numbers.

The key is the operator's structure (kind, shapes, types, attributes; no names, no ids) and, for a piece, its place,
as JSON text.  So equal operators of different networks share their measurements, and the numbers that a cost
model needs can be computed again from a record alone.
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
from tvm_codl.graph.names import anchor_of
from tvm_codl.graph.opgraph import Const, Node, Operator, OpGraph, Shape, Tensor
from tvm_codl.graph.rule import window_pads

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

    Sizes are those of the anchor (the convolution, pooling, ... of the fused operator) as this piece runs it, with
    ``height`` and ``width`` 1 where it has none; bytes are those of the whole fused operator's arguments, ``bytes_data``
    those of the anchor's first alone.  ``stride`` and ``dilation`` are those of the height.  ``bytes_relayout`` are
    written again with the split axis outermost, where it does not lie so by itself.  ``exponentials`` counts the values of
    which an exponential function is taken.
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
    bytes_relayout: int = 0
    exponentials: int = 0
    cut: Cut | None = None
    whole: Workload | None = None

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
    whole = described(operator, graph)
    return [
        _piece(whole, operator, graph, axis, _cut(operator, graph, axis, lo, hi)) if axis else whole
        for axis, lo, hi in pieces
    ]


@lru_cache(maxsize=8192)
def _from_key(key: str) -> Workload:
    try:
        structure = msgspec.json.decode(key, type=Structure)
    except msgspec.DecodeError as error:
        raise UserError("a record's workload is no workload", f"{key[:80]!r}: {error}") from error
    operator, graph = _rebuild(structure)
    known = described(operator, graph)
    if structure.cut is None:
        return known
    # An axis may have had its name from the neighbours in the network; its number is the operator's own.
    names = [axis.name for axis in split.axes(operator, graph).values() if axis.index == structure.cut.index]
    if not names:
        raise UserError("a record's workload is a piece that no split rule makes any more", repr(structure.cut))
    return _piece(known, operator, graph, names[0], structure.cut)


def _rebuild(structure: Structure) -> tuple[Operator, OpGraph]:
    """A network of this one operator."""
    values = structure.inputs + structure.outputs
    tensors = tuple(Tensor(i, f"t{i}", value.shape, value.dtype) for i, value in enumerate(values))
    inputs = tuple(range(len(structure.inputs)))
    outputs = tuple(range(len(inputs), len(values)))
    consts = tuple(Const(f"c{i}", value.shape, value.dtype) for i, value in enumerate(structure.consts))
    operator = Operator(0, structure.kind, structure.kind, inputs, outputs, structure.body, consts, structure.flops)
    return operator, OpGraph(tensors, (operator,), inputs, outputs)


def described(operator: Operator, graph: OpGraph) -> Workload:
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


def _cut(operator: Operator, graph: OpGraph, name: str, lo: int, hi: int) -> Cut:
    axis = split.axes(operator, graph).get(name)
    if axis is None:
        raise split.NoSplit(f"{operator.name} has no axis {name!r}")
    return Cut(name, axis.index, lo, hi, axis.extent)


def _piece(whole: Workload, operator: Operator, graph: OpGraph, name: str, cut: Cut) -> Workload:
    head = whole.key[: whole.key.rindex('"cut":')]
    key = f'{head}"cut":{msgspec.json.encode(cut).decode()}}}'
    return _describe(key, split.piece(operator, graph, name, cut.lo, cut.hi), graph, cut, whole)


def _describe(key: str, piece: split.Piece, graph: OpGraph, cut: Cut | None, whole: Workload | None) -> Workload:
    """Operators and pieces alike: a piece is an operator of its own."""
    operator = piece.operator
    node = operator.body[anchor_of(operator.body)]
    attrs = node.attrs
    layout = layout_of(node)
    batch, out_h, out_w, out_c = image(node.results[0], str(attrs.get("out_layout") or layout))
    _, in_h, in_w, in_c = image(_argument(node, 0, piece), layout)
    kernel_h, kernel_w = _kernel(node, piece)
    pads = _pads(attrs.get("padding"))
    data, types = _argument(node, 0, piece), [graph.tensors[i].dtype for i in operator.inputs]
    bytes_out = sum(bytes_of(shape, operator.body[-1].dtype) for shape in operator.body[-1].results)
    return Workload(
        key=key,
        kind=operator.kind,
        anchor=node.op,
        dtype=operator.body[-1].dtype,
        batch=batch,
        out_h=out_h,
        out_w=out_w,
        out_c=out_c,
        in_h=in_h,
        in_w=in_w,
        in_c=in_c,
        kernel_h=kernel_h,
        kernel_w=kernel_w,
        stride=_first(attrs.get("strides"), 1),
        dilation=_first(attrs.get("dilation"), 1),
        groups=_first(attrs.get("groups"), 1),
        flops=operator.flops,
        bytes_in=sum(map(bytes_of, piece.feed_shapes, types)),
        bytes_weights=sum(bytes_of(const.shape, const.dtype) for const in operator.consts),
        bytes_out=bytes_out,
        body=len(operator.body),
        stride_w=_first(attrs.get("strides"), 1, -1),
        dilation_w=_first(attrs.get("dilation"), 1, -1),
        pad_top=pads[0],
        pad_left=pads[1],
        pad_bottom=pads[2],
        pad_right=pads[3],
        bytes_data=bytes_of(data, node.dtype) if data else 0,
        bytes_relayout=bytes_out if cut and math.prod(operator.body[-1].results[0][: cut.index]) > 1 else 0,
        exponentials=sum(math.prod(n.results[0]) for n in operator.body if n.op in EXPONENTIAL),
        cut=cut,
        whole=whole,
    )


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
    if isinstance(value, (list, tuple)):
        return int(value[at]) if value else default
    return default if value is None else int(value)


def _pads(value: Any) -> tuple[int, int, int, int]:
    """Top, left, bottom, right; zero for what pads otherwise than a window in two dimensions."""
    known = isinstance(value, (list, tuple)) and len(value) in (1, 2, 4) and all(isinstance(n, int) for n in value)
    return window_pads(list(value)) if known else (0, 0, 0, 0)
