"""A partitioned module's regions, the tensors between them, and the tensors' layout in memory.

Tensors lie in their natural order.  Pieces along the outermost axis are ranges of one buffer, and joining them costs nothing;
pieces along another axis have a buffer each, and the regions that read both join them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relay

from tvm_codl.errors import UserError
from tvm_codl.graph.slab import outermost


@dataclass(frozen=True)
class Value:
    """A contiguous part of a root tensor: ``lo:hi`` of ``axis``; ``axis`` -1 is the whole tensor."""

    root: int
    axis: int = -1
    lo: int = 0
    hi: int = 0


@dataclass(frozen=True)
class Join:
    """Pieces of a tensor, along another axis than its outermost: whoever reads it joins them."""

    axis: int
    pieces: tuple[Value, ...]


@dataclass(frozen=True)
class Root:
    """A tensor with its own buffer, in its natural order."""

    shape: tuple[int, ...]
    dtype: str
    name: str = ""

    def part_shape(self, part: Value) -> tuple[int, ...]:
        return tuple(part.hi - part.lo if axis == part.axis else extent for axis, extent in enumerate(self.shape))


@dataclass(frozen=True)
class Argument:
    """An input of a region, or an output of the network: a part of a buffer, and the slice (axis, lo, hi) of that part."""

    part: Value
    crop: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Region:
    """One function on one processor."""

    name: str
    processor: str
    operators: str
    function: relay.Function
    inputs: list[Argument]
    outputs: list[Value]


@dataclass(frozen=True)
class Dataflow:
    roots: list[Root]
    regions: list[Region]
    inputs: list[tuple[str, Value]]
    outputs: list[Argument]
    timed_alone: bool = False  # each region is timed alone: the CPU must access what a GPU region reads


def shape_of(type_: tvm.ir.Type) -> tuple[int, ...]:
    return tuple(int(d) for d in type_.shape)


def count_bytes(shape: Sequence[int], dtype: str) -> int:
    type_ = tvm.DataType(dtype)
    return math.prod(shape) * max(1, (type_.bits * type_.lanes + 7) // 8)


class _Reader:
    """Walks ``@main`` once and finds the values of every expression."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self.mod = mod
        self.roots: list[Root] = []
        self.regions: list[tuple[str, relay.Function, list[Value | Join], list[Value]]] = []
        self.memo: dict[relay.Expr, list[Value | Join]] = {}
        self.alias: dict[int, Value] = {}

    def root(self, type_: tvm.ir.TensorType, name: str = "") -> Value:
        self.roots.append(Root(shape_of(type_), str(type_.dtype), name))
        return Value(len(self.roots) - 1)

    def visit(self, expr: relay.Expr) -> list[Value | Join]:
        if expr in self.memo:
            return self.memo[expr]
        if isinstance(expr, relay.Tuple):
            values = [v for f in expr.fields for v in self.visit(f)]
        elif isinstance(expr, relay.TupleGetItem):
            values = [self.visit(expr.tuple_value)[expr.index]]
        elif isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.GlobalVar):
            values = list(self.region(expr))
        elif isinstance(expr, relay.Call) and expr.op.name == "strided_slice":
            values = [self.slice(expr)]
        elif isinstance(expr, relay.Call) and expr.op.name == "concatenate":
            values = [self.join(expr)]
        else:
            raise UserError("the partitioned module's @main holds an unknown expression", str(expr)[:200])
        self.memo[expr] = values
        return values

    def region(self, call: relay.Call) -> list[Value]:
        name = str(call.op.name_hint)
        function = self.mod[call.op]
        # Arguments first: regions are listed after their producers.
        inputs = [v for a in call.args for v in self.visit(a)]
        type_ = call.checked_type
        fields = list(type_.fields) if isinstance(type_, tvm.ir.TupleType) else [type_]
        outputs = [self.root(t, f"{name}.{i}") for i, t in enumerate(fields)]
        self.regions.append((name, function, inputs, outputs))
        return outputs

    def slice(self, call: relay.Call) -> Value | Join:
        (value,) = self.visit(call.args[0])
        source = shape_of(call.args[0].checked_type)
        result = shape_of(call.checked_type)
        cut = [a for a, (x, y) in enumerate(zip(source, result, strict=True)) if x != y]
        if not cut:
            return value
        if len(cut) != 1:
            raise UserError("a slice along two axes in the partitioned module's @main", str(call)[:200])
        (axis,) = cut
        begin = [int(b) for b in call.attrs.begin]
        axes = [int(a) for a in call.attrs.axes] if call.attrs.axes is not None else list(range(len(begin)))
        lo = begin[axes.index(axis)]
        lo += source[axis] if lo < 0 else 0
        hi = lo + result[axis]
        if isinstance(value, Value):
            return self.part(value, axis, lo, hi, call)
        pieces: list[Value] = []
        start = 0
        for piece in value.pieces:
            end = start + self.shape(piece)[axis]
            if axis != value.axis:
                pieces.append(self.part(piece, axis, lo, hi, call))
            elif max(lo, start) < min(hi, end):
                pieces.append(self.part(piece, axis, max(lo, start) - start, min(hi, end) - start, call))
            start = end
        return pieces[0] if len(pieces) == 1 else Join(value.axis, tuple(pieces))

    def part(self, value: Value, axis: int, lo: int, hi: int, call: relay.Call) -> Value:
        """``lo:hi`` of a value's ``axis``."""
        if (lo, hi) == (0, self.shape(value)[axis]):
            return value
        if value.axis not in (-1, axis):
            raise UserError("a slice of a slice along another axis in @main", str(call)[:200])
        base = value.lo if value.axis == axis else 0
        return Value(value.root, axis, base + lo, base + hi)

    def shape(self, value: Value) -> tuple[int, ...]:
        return self.roots[value.root].part_shape(value)

    def join(self, call: relay.Call) -> Value | Join:
        given = [v for a in call.args for v in self.visit(a)]
        shape = shape_of(call.checked_type)
        axis = int(call.attrs.axis)
        axis += len(shape) if axis < 0 else 0
        parts = [v for v in given if isinstance(v, Value) and v.axis == -1 and v.root not in self.alias]
        if len(parts) < len(given):
            raise UserError("a join of something other than two whole pieces in @main", str(call)[:200])
        if axis != outermost(shape):
            return Join(axis, tuple(parts))
        joined = self.root(call.checked_type)
        at = 0
        for part in parts:
            extent = self.roots[part.root].shape[axis]
            self.alias[part.root] = Value(joined.root, axis, at, at + extent)
            at += extent
        return joined

    def resolve(self, value: Value) -> Argument:
        """A value as a contiguous part of its buffer: for a piece of a joined tensor, the joined tensor's."""
        if value.root in self.alias:
            home = self.alias[value.root]
            if value.axis == -1:
                return Argument(home)
            if value.axis == home.axis:
                return Argument(Value(home.root, home.axis, home.lo + value.lo, home.lo + value.hi))
            return Argument(home, (value.axis, value.lo, value.hi))
        if value.axis == -1 or outermost(self.roots[value.root].shape) == value.axis:
            return Argument(value)
        return Argument(Value(value.root), (value.axis, value.lo, value.hi))

    def joining(self, function: relay.Function, taken: list[Value | Join]) -> tuple[relay.Function, list[Value]]:
        """A function that takes the pieces of what it reads, and these."""
        params: list[relay.Var] = []
        joined: dict[relay.Var, relay.Expr] = {}
        values: list[Value] = []
        for param, value in zip(function.params, taken, strict=True):
            if isinstance(value, Value):
                params.append(param)
                values.append(value)
                continue
            dtype = param.checked_type.dtype
            pieces = [
                relay.var(f"{param.name_hint}_{k}", shape=self.shape(v), dtype=dtype)
                for k, v in enumerate(value.pieces)
            ]
            params += pieces
            values += value.pieces
            joined[param] = relay.concatenate(pieces, value.axis)
        if not joined:
            return function, values
        body = relay.bind(function.body, joined)
        made = relay.Function(params, body, function.ret_type, attrs=function.attrs)
        return relay.transform.InferType()(tvm.IRModule({"region": made}))["region"], values

    def output(self, value: Value | Join) -> Value:
        """An output of the network, which the CPU joins where it lies in pieces."""
        if isinstance(value, Value):
            return value
        shape = list(self.shape(value.pieces[0]))
        shape[value.axis] = sum(self.shape(piece)[value.axis] for piece in value.pieces)
        whole = relay.var("whole", shape=shape, dtype=self.roots[value.pieces[0].root].dtype)
        function = relay.Function([whole], whole).with_attr({"codl.processor": "cpu", "codl.operators": ""})
        function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
        made = self.root(function.ret_type)
        self.regions.append((f"codl_join_{len(self.regions)}", function, [value], [made]))
        return made


def read(mod: tvm.IRModule) -> Dataflow:
    """The dataflow of a partitioned module.

    Raises :class:`UserError` where the module breaks the contract of ``PartitionCoExecution``.
    """
    mod = relay.transform.InferType()(mod)
    main = mod["main"]
    reader = _Reader(mod)
    inputs = []
    for param in main.params:
        value = reader.root(param.checked_type, str(param.name_hint))
        reader.memo[param] = [value]
        inputs.append((str(param.name_hint), value))
    outputs = [reader.output(value) for value in reader.visit(main.body)]
    regions = []
    for name, function, taken, given in reader.regions:
        attrs = function.attrs
        function, pieces = reader.joining(function, taken)
        operators = str(attrs["codl.operators"]) if "codl.operators" in attrs else ""
        arguments, results = [reader.resolve(v) for v in pieces], [reader.resolve(v).part for v in given]
        regions.append(Region(name, str(attrs["codl.processor"]), operators, function, arguments, results))
    return Dataflow(reader.roots, regions, inputs, [reader.resolve(v) for v in outputs])
