"""From a prepared Relay module to its OpGraph."""

from __future__ import annotations

import functools
from collections import Counter

import msgspec
import numpy as np
import tvm
from tvm import relay

from tvm_codl.errors import UserError
from tvm_codl.graph.flops import node_flops
from tvm_codl.graph.names import anchor_of
from tvm_codl.graph.opgraph import Const, Node, Operator, OpGraph, Ref, Shape, Tensor
from tvm_codl.graph.rules import RULES
from tvm_codl.relay.attributes import to_plain
from tvm_codl.relay.calls import tensor_type
from tvm_codl.relay.walk import in_order

_PRODUCTS = frozenset(f"nn.{name}" for name in ("conv2d", "conv2d_transpose", "dense", "matmul", "batch_matmul"))

#: Nodes that are expressions of their own in Relay, and the operator of a constant output.
TUPLE, TUPLE_GET_ITEM, IDENTITY = "tuple", "tuple_get_item", "copy"


def read(prepared: tvm.IRModule) -> tuple[OpGraph, dict[str, np.ndarray], dict[int, relay.Call]]:
    """The graph and weights of a prepared module, and each operator's call.  Deterministic."""
    return _read(prepared["main"])


def read_kept(prepared: tvm.IRModule) -> tuple[OpGraph, dict[str, np.ndarray], dict[int, relay.Call]]:
    """As :func:`read`, and keeps what it found until it reads another module: each plan asks for it again."""
    return _read_kept(prepared["main"])


def _read(main: relay.Function) -> tuple[OpGraph, dict[str, np.ndarray], dict[int, relay.Call]]:
    reader = _Reader(main)
    return reader.graph(), reader.weights, reader.calls


_read_kept = functools.lru_cache(maxsize=1)(_read)


def tensor_types(kind: relay.Type) -> list[tuple[Shape, str]]:
    """The tensors of a type: itself, or the fields of a tuple."""
    if isinstance(kind, relay.TupleType):
        return [leaf for field in kind.fields for leaf in tensor_types(field)]
    return [tensor_type(kind)]


class _Reader:
    """Reads ``@main`` of a prepared module once, in order."""

    def __init__(self, main: relay.Function) -> None:
        self.main = main
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.weights: dict[str, np.ndarray] = {}
        self.calls: dict[int, relay.Call] = {}
        self.values: dict[relay.Expr, list[int | relay.Constant]] = {}
        self.kinds: Counter[str] = Counter()
        self.inputs = [self._tensor(str(var.name_hint), *tensor_type(var.checked_type)) for var in main.params]
        for var, tensor in zip(main.params, self.inputs, strict=True):
            self.values[var] = [tensor]
        for expr in in_order(main.body):
            if expr not in self.values:
                self.values[expr] = self._read(expr)
        self.outputs = [self._materialised(value) for value in self.values[main.body]]

    def graph(self) -> OpGraph:
        return OpGraph(tuple(self.tensors), tuple(self.operators), tuple(self.inputs), tuple(self.outputs))

    def _tensor(self, name: str, shape: Shape, dtype: str) -> int:
        self.tensors.append(Tensor(len(self.tensors), name, shape, dtype))
        return len(self.tensors) - 1

    def _read(self, expr: relay.Expr) -> list[int | relay.Constant]:
        if isinstance(expr, relay.Constant):
            return [expr]
        if isinstance(expr, relay.Tuple):
            return [value for field in expr.fields for value in self.values[field]]
        if isinstance(expr, relay.TupleGetItem):
            fields = expr.tuple_value.checked_type.fields
            widths = [len(tensor_types(field)) for field in fields]
            first = sum(widths[: expr.index])
            return self.values[expr.tuple_value][first : first + widths[expr.index]]
        assert isinstance(expr, relay.Call)
        return list(self._operator(expr))

    def _operator(self, call: relay.Call) -> list[int]:
        if not isinstance(call.op, relay.Function):
            raise UserError("the module was not prepared: it calls an operator outside of a fused function")
        body = _Body(call.op, [value for arg in call.args for value in self.values[arg]])
        anchor = body.nodes[anchor_of(tuple(body.nodes))]
        kind = kind_of(anchor, body.shapes(anchor))
        return self._add(kind, body, tensor_types(call.checked_type), call)

    def _add(self, kind: str, body: _Body, results: list[tuple[Shape, str]], call: relay.Call | None) -> list[int]:
        self.kinds[kind] += 1
        name = f"{kind}_{self.kinds[kind]}"
        id = len(self.operators)
        labels = [name] if len(results) == 1 else [f"{name}.{index}" for index in range(len(results))]
        outputs = [self._tensor(label, *result) for label, result in zip(labels, results, strict=True)]
        weights = {f"{name}.{index}": value for index, value in enumerate(body.consts)}
        self.weights |= weights
        consts = tuple(Const(key, tuple(value.shape), str(value.dtype)) for key, value in weights.items())
        flops = sum(node_flops(node, body.shapes(node)) for node in body.nodes)
        self.operators.append(
            Operator(id, name, kind, tuple(body.inputs), tuple(outputs), tuple(body.nodes), consts, flops)
        )
        if call is not None:
            self.calls[id] = call
        return outputs

    def _materialised(self, value: int | relay.Constant) -> int:
        """An output of the network that is a constant gets an operator that returns it."""
        if isinstance(value, int):
            return value
        body = _Body(relay.Function([], value), [])
        return self._add("constant", body, [tensor_type(value.checked_type)], None)[0]


def kind_of(node: Node, args: tuple[Shape, ...]) -> str:
    """The short name of an operator with this anchor; ``opaque`` if no split rule knows it.

    Products of integers have names of their own: their kernels are others, and so is what they cost.
    """
    if node.op not in RULES or len(node.results) != 1:
        return "opaque"
    kind = node.op.rsplit(".", 1)[-1]
    if node.op == "nn.conv2d" and node.attrs["groups"] > 1:
        channels = args[0][node.attrs["data_layout"].index("C")]
        kind = "depthwise" if channels == node.attrs["groups"] else "conv2d"
    return f"integer_{kind}" if node.op in _PRODUCTS and node.dtype == "int32" else kind


class _Body:
    """The nodes, inputs and weights of one primitive function, as called."""

    def __init__(self, function: relay.Function, actual: list[int | relay.Constant]) -> None:
        self.nodes: list[Node] = []
        self.inputs: list[int] = []
        self.consts: list[np.ndarray] = []
        self._shapes: dict[Ref, Shape] = {}
        refs: dict[relay.Expr, list[Ref]] = {}
        position = 0
        for param in function.params:
            leaves = tensor_types(param.checked_type)
            values = actual[position : position + len(leaves)]
            refs[param] = [self._argument(value, shape) for value, (shape, _) in zip(values, leaves, strict=True)]
            position += len(leaves)
        for expr in in_order(function.body):
            if expr not in refs:
                refs[expr] = self._read(expr, refs)
        final = refs[function.body]
        if isinstance(function.body.checked_type, relay.TupleType) and not isinstance(function.body, relay.Call):
            shapes = tuple(shape for shape, _ in tensor_types(function.body.checked_type))
            self._node(TUPLE, {}, final, shapes, "")
        elif final[0] != Ref("node", len(self.nodes) - 1):
            shape, dtype = tensor_type(function.body.checked_type)
            self._node(IDENTITY, {}, final, (shape,), dtype)
        self._drop_unused_inputs()

    def _drop_unused_inputs(self) -> None:
        """A function that takes a tuple takes all of it, whatever it reads."""
        used = sorted({ref.index for node in self.nodes for ref in node.args if ref.source == "input"})
        if len(used) == len(self.inputs):
            return
        moved = {Ref("input", old): Ref("input", new) for new, old in enumerate(used)}
        self.inputs = [self.inputs[index] for index in used]
        self.nodes = [
            msgspec.structs.replace(node, args=tuple(moved.get(ref, ref) for ref in node.args)) for node in self.nodes
        ]
        self._shapes |= {new: self._shapes[old] for old, new in moved.items()}

    def shapes(self, node: Node) -> tuple[Shape, ...]:
        return tuple(self._shapes[ref] for ref in node.args)

    def _argument(self, value: int | relay.Constant, shape: Shape) -> Ref:
        if isinstance(value, relay.Constant):
            return self._const(value.data.numpy())
        if value not in self.inputs:
            self.inputs.append(value)
        ref = Ref("input", self.inputs.index(value))
        self._shapes[ref] = shape
        return ref

    def _const(self, value: np.ndarray) -> Ref:
        self.consts.append(value)
        ref = Ref("const", len(self.consts) - 1)
        self._shapes[ref] = tuple(value.shape)
        return ref

    def _read(self, expr: relay.Expr, refs: dict[relay.Expr, list[Ref]]) -> list[Ref]:
        if isinstance(expr, relay.Constant):
            return [self._const(expr.data.numpy())]
        if isinstance(expr, relay.Tuple):
            return [ref for field in expr.fields for ref in refs[field]]
        if isinstance(expr, relay.TupleGetItem):
            source = refs[expr.tuple_value]
            if not isinstance(expr.tuple_value, relay.Call):  # a tuple of single tensors, or a parameter
                return [source[expr.index]]
            shape, dtype = tensor_type(expr.checked_type)
            return [self._node(TUPLE_GET_ITEM, {"index": int(expr.index)}, [source[0]], (shape,), dtype)]
        assert isinstance(expr, relay.Call)
        if not isinstance(expr.op, tvm.ir.Op):
            raise UserError("a fused operator calls a function of its own")
        args = [ref for arg in expr.args for ref in refs[arg]]
        leaves = tensor_types(expr.checked_type)
        ref = self._node(str(expr.op.name), to_plain(expr), args, tuple(shape for shape, _ in leaves), leaves[0][1])
        return [ref] * len(leaves)

    def _node(self, op: str, attrs: dict[str, object], args: list[Ref], results: tuple[Shape, ...], dtype: str) -> Ref:
        self.nodes.append(Node(op, attrs, tuple(args), results, dtype))
        ref = Ref("node", len(self.nodes) - 1)
        self._shapes[ref] = results[0]
        return ref
