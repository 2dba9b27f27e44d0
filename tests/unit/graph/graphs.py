"""Graphs of a single fused operator, written by hand."""

from __future__ import annotations

from typing import Any

from tvm_codl.graph.flops import node_flops
from tvm_codl.graph.opgraph import Const, Node, Operator, OpGraph, Ref, Shape, Tensor

CONV: dict[str, Any] = {
    "strides": [1, 1],
    "padding": [0, 0, 0, 0],
    "dilation": [1, 1],
    "groups": 1,
    "data_layout": "NHWC",
    "kernel_layout": "HWIO",
    "out_layout": "",
}
POOL: dict[str, Any] = {
    "pool_size": [2, 2],
    "strides": [1, 1],
    "dilation": [1, 1],
    "padding": [0, 0, 0, 0],
    "layout": "NHWC",
    "ceil_mode": False,
}


def single(inputs: list[Shape], consts: list[Shape], *body: Node) -> tuple[Operator, OpGraph]:
    """A graph of one operator with this body."""
    tensors = [Tensor(index, f"in{index}", shape, "float32") for index, shape in enumerate(inputs)]
    results = body[-1].results
    outputs = tuple(len(inputs) + index for index in range(len(results)))
    tensors += [Tensor(id, f"out{id}", shape, "float32") for id, shape in zip(outputs, results, strict=True)]
    weights = tuple(Const(f"w{index}", shape, "float32") for index, shape in enumerate(consts))
    given = tuple(range(len(inputs)))
    operator = Operator(0, "op_1", "op", given, outputs, body, weights, 0)
    graph = OpGraph(tuple(tensors), (operator,), given, outputs)
    return operator, graph


def node(op: str, attrs: dict[str, Any], args: str, *results: Shape) -> Node:
    """``args`` like ``"i0 c1 n2"``: input 0, const 1, node 2."""
    sources = {"i": "input", "c": "const", "n": "node"}
    refs = tuple(Ref(sources[word[0]], int(word[1:])) for word in args.split())  # type: ignore[arg-type]
    return Node(op, attrs, refs, results, "float32")


def conv2d(rows: int, inputs: int, outputs: int, kernel: int, **attrs: Any) -> tuple[Operator, OpGraph]:
    """A convolution in NHWC over ``rows`` x 6, with a bias and a ReLU behind."""
    full = {**CONV, "channels": outputs, "kernel_size": [kernel, 1], **attrs}
    top, _, bottom, _ = full["padding"]
    reach = (kernel - 1) * full["dilation"][0] + 1
    height = (rows + top + bottom - reach) // full["strides"][0] + 1
    groups = full["groups"]
    shape = (1, height, 6, outputs)
    weight = (kernel, 1, inputs // groups, outputs) if full["kernel_layout"] == "HWIO" else (kernel, 1, groups, outputs // groups)  # fmt: skip
    return single(
        [(1, rows, 6, inputs)],
        [weight, (outputs,)],
        node("nn.conv2d", full, "i0 c0", shape),
        node("add", {}, "n0 c1", shape),
        node("nn.relu", {}, "n1", shape),
    )


def total_flops(operator: Operator, shapes: list[Shape]) -> int:
    """The flops of a body, from the shapes that its nodes state."""
    found = 0
    for item in operator.body:
        args = tuple(
            shapes[ref.index]
            if ref.source == "input"
            else operator.consts[ref.index].shape
            if ref.source == "const"
            else operator.body[ref.index].results[0]
            for ref in item.args
        )
        found += node_flops(item, args)
    return found
