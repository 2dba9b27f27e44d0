"""All regions of one processor, compiled by one ``relay.build``.

One build for all regions: equal operators are compiled once, and the passes that lay weights out (AlterOpLayout,
FoldConstant) run once.  Regions share no value, so nothing fuses across them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relay

from tvm_codl.build.dataflow import Argument, Dataflow, Root, Value, count_bytes
from tvm_codl.build.launches import Launch, make_recorder
from tvm_codl.errors import UserError

# LLVM 22 rejects TVM's debug information on vectors from common-subexpression elimination.
PASS_CONFIG = {"tir.disable_cse_tir": True}
# Folds scales computed at run time (squeeze-and-excitation) into weights, which are then no longer constant.
DISABLED_PASSES = ["ForwardFoldScaleAxis"]


@dataclass(frozen=True)
class Operand:
    """A kernel's argument: ``kind`` is input, output, weight or scratch, ``index`` its number in the region."""

    kind: str
    index: int
    shape: tuple[int, ...]
    dtype: str
    name: str = ""


@dataclass(frozen=True)
class Call:
    """One PrimFunc call of a region; ``function`` '' is a copy of the first operand to the second."""

    function: str
    operands: list[Operand]
    outputs: int


@dataclass(frozen=True)
class CompiledRegion:
    region: int
    calls: list[Call]
    scratch: list[int]


@dataclass(frozen=True)
class Kernels:
    """``library`` holds the functions; ``weights`` by name; ``regions`` in the processor's order; ``launches`` on a GPU by
    function."""

    library: tvm.runtime.Module
    weights: dict[str, np.ndarray]
    regions: list[CompiledRegion]
    launches: dict[str, list[Launch]]


def memory_shape(root: Root, part: Value) -> tuple[int, ...]:
    """The shape of a part as it lies in memory."""
    shape = list(root.shape)
    if part.axis >= 0:
        shape[part.axis] = part.hi - part.lo
    return tuple(shape[a] for a in root.permutation())


def compile_regions(
    flow: Dataflow, processor: str, target: tvm.target.Target, mod_name: str, passes: Sequence[Any] = ()
) -> Kernels | None:
    """Builds every region of ``processor``; ``None`` without any.  ``passes`` are more for ``tir.add_lower_pass``."""
    chosen = [i for i, r in enumerate(flow.regions) if r.processor == processor]
    if not chosen:
        return None
    params: list[relay.Var] = []
    results: list[relay.Expr] = []
    for index in chosen:
        region = flow.regions[index]
        given = []
        for i, argument in enumerate(region.inputs):
            root = flow.roots[argument.part.root]
            shape = memory_shape(root, argument.part)
            param = relay.var(f"r{index}_i{i}", shape=shape, dtype=root.dtype)
            params.append(param)
            given.append(_logical(param, root, argument))
        body = relay.bind(region.function.body, dict(zip(region.function.params, given, strict=True)))
        count = len(region.outputs)
        parts = (
            [body] if not isinstance(region.function.ret_type, tvm.ir.TupleType) else [body[i] for i in range(count)]
        )
        for part, value in zip(parts, region.outputs, strict=True):
            order = flow.roots[value.root].permutation()
            results.append(part if order == tuple(sorted(order)) else relay.transpose(part, order))
    mod = tvm.IRModule.from_expr(relay.Function(params, relay.Tuple(results)))
    mod = relay.transform.InferType()(mod)
    launches: dict[str, list[Launch]] = {}
    config = {**PASS_CONFIG, "tir.add_lower_pass": [make_recorder(launches), *passes]}
    with tvm.transform.PassContext(opt_level=3, config=config, disabled_pass=DISABLED_PASSES):
        built = relay.build(mod, target=target, mod_name=mod_name)
    weights = {name: value.numpy() for name, value in built.get_params().items()}
    graph = _Graph(json.loads(built.get_graph_json()))
    heads, regions = list(graph.heads), []
    for index in chosen:
        count = len(flow.regions[index].outputs)
        regions.append(_RegionReader(graph, index, heads[:count], set(weights)).read())
        del heads[:count]
    return Kernels(built.get_lib(), weights, regions, launches)


def _logical(param: relay.Var, root: Root, argument: Argument) -> relay.Expr:
    """The region's view of a buffer part: axes in logical order, then the slice that the region reads."""
    expr: relay.Expr = param
    order = root.permutation()
    if order != tuple(sorted(order)):
        expr = relay.transpose(expr, [order.index(a) for a in range(len(order))])
    if argument.crop is not None:
        axis, lo, hi = argument.crop
        expr = relay.strided_slice(expr, begin=[lo], end=[hi], strides=[1], axes=[axis])
    return expr


class _Graph:
    """TVM's graph JSON.  An entry is one output of one node; ``node_of`` is an entry's node."""

    def __init__(self, graph: dict[str, Any]) -> None:
        self.nodes = graph["nodes"]
        self.rows = graph["node_row_ptr"]
        self.heads = [self.entry(h) for h in graph["heads"]]
        attrs = graph["attrs"]
        self.shape = [tuple(s) for s in attrs["shape"][1]]
        self.dtype = ["bool" if name == "uint1" else name for name in attrs["dltype"][1]]
        self.storage = attrs["storage_id"][1]
        self.node_of = [node for node in range(len(self.nodes)) for _ in self.outputs(node)]

    def entry(self, reference: list[int]) -> int:
        return int(self.rows[reference[0]]) + int(reference[1])

    def inputs(self, node: int) -> list[int]:
        return [self.entry(r) for r in self.nodes[node]["inputs"]]

    def outputs(self, node: int) -> list[int]:
        return list(range(self.rows[node], self.rows[node + 1]))

    def is_call(self, node: int) -> bool:
        return bool(self.nodes[node]["op"] == "tvm_op")

    def function(self, node: int) -> str:
        return str(self.nodes[node]["attrs"]["func_name"])

    def bytes(self, entry: int) -> int:
        return count_bytes(self.shape[entry], self.dtype[entry])


class _RegionReader:
    """Reads the calls behind one region's outputs, ``heads``, and the operand of each entry."""

    def __init__(self, graph: _Graph, index: int, heads: list[int], weights: set[str]) -> None:
        self.graph, self.index, self.weights = graph, index, weights
        node_of = graph.node_of
        wanted = {node_of[h] for h in heads}
        for node in range(len(graph.nodes) - 1, -1, -1):
            if node in wanted and graph.is_call(node):
                wanted |= {node_of[e] for e in graph.inputs(node)}
        self.calls = [n for n in sorted(wanted) if graph.is_call(n)]
        # A reshape has no kernel: its result is its argument in another shape.
        self.same: dict[int, int] = {}
        for node in self.calls:
            if graph.function(node) == "__nop":
                (given,), (result,) = graph.inputs(node), graph.outputs(node)
                self.same[result] = self.same.get(given, given)
        self.output_of: dict[int, int] = {}
        self.copies: list[tuple[int, int]] = []
        for position, head in enumerate(heads):
            origin = self.origin(head)
            if origin in self.output_of or not graph.is_call(node_of[origin]):
                self.copies.append((origin, position))
            else:
                self.output_of[origin] = position
        self.scratch: dict[int, int] = {}

    def origin(self, entry: int) -> int:
        return self.same.get(entry, entry)

    def operand(self, entry: int) -> Operand:
        graph, origin = self.graph, self.origin(entry)
        shape, dtype = graph.shape[entry], graph.dtype[entry]
        if origin in self.output_of:
            return Operand("output", self.output_of[origin], shape, dtype)
        node = graph.node_of[origin]
        if not graph.is_call(node):
            name = graph.nodes[node]["name"]
            if name in self.weights:
                return Operand("weight", 0, shape, dtype, name)
            region, _, position = name.removeprefix("r").partition("_i")
            if int(region) != self.index:
                raise UserError("a region reads another region's input", name)
            return Operand("input", int(position), shape, dtype)
        storage = graph.storage[origin]
        self.scratch[storage] = max(self.scratch.get(storage, 0), graph.bytes(origin))
        return Operand("scratch", storage, shape, dtype)

    def read(self) -> CompiledRegion:
        calls = []
        for node in self.calls:
            if self.graph.function(node) == "__nop":
                continue
            results = self.graph.outputs(node)
            operands = [self.operand(e) for e in [*self.graph.inputs(node), *results]]
            calls.append(Call(self.graph.function(node), operands, len(results)))
        for origin, position in self.copies:
            source = self.operand(origin)
            calls.append(Call("", [source, Operand("output", position, source.shape, source.dtype)], 1))
        # Slots by falling size, so that regions of one processor can share them.
        order = sorted(self.scratch, key=lambda s: (-self.scratch[s], s))
        rank = {s: k for k, s in enumerate(order)}
        for call in calls:
            call.operands[:] = [replace(o, index=rank[o.index]) if o.kind == "scratch" else o for o in call.operands]
        return CompiledRegion(self.index, calls, [self.scratch[s] for s in order])
