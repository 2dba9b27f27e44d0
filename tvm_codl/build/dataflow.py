"""A partitioned module's regions, the tensors between them, and the tensors' layout in memory.

A tensor that regions on both processors write or read is one buffer.  Its split axis lies outermost, so that each piece is
a contiguous range and joining two pieces costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relay

from tvm_codl.errors import UserError


@dataclass(frozen=True)
class Value:
    """A contiguous part of a root tensor: ``lo:hi`` of ``axis``; ``axis`` -1 is the whole tensor."""

    root: int
    axis: int = -1
    lo: int = 0
    hi: int = 0


@dataclass
class Root:
    """A tensor with its own buffer.  ``outer`` is the outermost axis in memory."""

    shape: tuple[int, ...]
    dtype: str
    name: str = ""
    outer: int = -1

    def permutation(self) -> tuple[int, ...]:
        """Logical axes in memory order."""
        axes = range(len(self.shape))
        if self.outer < 0 or math.prod(self.shape[: self.outer]) == 1:
            return tuple(axes)
        return (self.outer, *(a for a in axes if a != self.outer))

    def contiguous_axis(self) -> int:
        """The axis along which a slice is contiguous in memory."""
        if self.outer >= 0:
            return self.outer
        return next((a for a, extent in enumerate(self.shape) if extent > 1), 0)


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
        self.regions: list[tuple[str, relay.Function, list[Value], list[Value]]] = []
        self.memo: dict[relay.Expr, list[Value]] = {}
        self.alias: dict[int, Value] = {}

    def root(self, type_: tvm.ir.TensorType, name: str = "") -> Value:
        self.roots.append(Root(shape_of(type_), str(type_.dtype), name))
        return Value(len(self.roots) - 1)

    def visit(self, expr: relay.Expr) -> list[Value]:
        if expr in self.memo:
            return self.memo[expr]
        if isinstance(expr, relay.Tuple):
            values = [v for f in expr.fields for v in self.visit(f)]
        elif isinstance(expr, relay.TupleGetItem):
            values = [self.visit(expr.tuple_value)[expr.index]]
        elif isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.GlobalVar):
            values = self.region(expr)
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

    def slice(self, call: relay.Call) -> Value:
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
        if value.axis not in (-1, axis):
            raise UserError("a slice of a slice along another axis in @main", str(call)[:200])
        base = value.lo if value.axis == axis else 0
        return Value(value.root, axis, base + lo, base + lo + result[axis])

    def join(self, call: relay.Call) -> Value:
        parts = [v for a in call.args for v in self.visit(a)]
        joined = self.root(call.checked_type)
        axis = int(call.attrs.axis)
        axis += len(self.roots[joined.root].shape) if axis < 0 else 0
        self.roots[joined.root].outer = axis
        at = 0
        for part in parts:
            if part.axis != -1 or part.root in self.alias:
                raise UserError("a join of something other than two whole pieces in @main", str(call)[:200])
            extent = self.roots[part.root].shape[axis]
            self.alias[part.root] = Value(joined.root, axis, at, at + extent)
            at += extent
        return joined

    def lay_out(self, fixed: set[int]) -> None:
        """Puts the axis outermost along which a tensor is sliced, if there is one only; inputs keep the user's layout."""
        used = [v for _, _, taken, _ in self.regions for v in taken]
        for index, root in enumerate(self.roots):
            if root.outer >= 0 or index in self.alias or index in fixed:
                continue
            axes = {v.axis for v in used if v.root == index and v.axis >= 0}
            if len(axes) == 1:
                (root.outer,) = axes

    def resolve(self, value: Value) -> Argument:
        """A value as a contiguous part of its buffer: for a piece of a joined tensor, the joined tensor's."""
        if value.root in self.alias:
            home = self.alias[value.root]
            if value.axis == -1:
                return Argument(home)
            if value.axis == home.axis:
                return Argument(Value(home.root, home.axis, home.lo + value.lo, home.lo + value.hi))
            return Argument(home, (value.axis, value.lo, value.hi))
        if value.axis == -1 or self.roots[value.root].contiguous_axis() == value.axis:
            return Argument(value)
        return Argument(Value(value.root), (value.axis, value.lo, value.hi))


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
    outputs = reader.visit(main.body)
    reader.lay_out(fixed={v.root for _, v in inputs})
    regions = []
    for name, function, taken, given in reader.regions:
        attrs = function.attrs
        operators = str(attrs["codl.operators"]) if "codl.operators" in attrs else ""
        arguments, results = [reader.resolve(v) for v in taken], [reader.resolve(v).part for v in given]
        regions.append(Region(name, str(attrs["codl.processor"]), operators, function, arguments, results))
    return Dataflow(reader.roots, regions, inputs, [reader.resolve(v) for v in outputs])
