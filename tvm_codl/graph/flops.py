"""Floating-point operations of nodes, a multiply-add counted as two."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm_codl.graph.opgraph import Node, Shape
from tvm_codl.graph.rules import BINARY, REDUCTIONS, UNARY

_PER_ELEMENT = {
    **dict.fromkeys(UNARY, 1),
    **dict.fromkeys(BINARY, 1),
    "cast": 0,
    "copy": 0,
    "clip": 2,
    "nn.bias_add": 1,
    "nn.prelu": 2,
    "nn.leaky_relu": 2,
    "nn.softmax": 5,
    "nn.fast_softmax": 5,
    "nn.log_softmax": 5,
    "nn.lrn": 10,
    "nn.layer_norm": 8,
    "nn.instance_norm": 8,
    "nn.group_norm": 8,
}
_RESIZE_TAPS = {"nearest_neighbor": 0, "linear": 4, "bilinear": 4, "cubic": 16, "bicubic": 16}


def node_flops(node: Node, args: tuple[Shape, ...]) -> int:
    """Operations of one node with arguments of shapes ``args``; an operator that is not known counts as none."""
    return _flops(node.op, node.attrs, args, node.results[0])


def _flops(op: str, attrs: dict[str, Any], args: tuple[Shape, ...], result: Shape) -> int:
    size = prod(result)
    if op == "nn.conv2d":
        return 2 * size * prod(args[1]) // max(1, result[str(attrs["data_layout"]).index("C")])
    if op == "nn.conv2d_transpose":
        # Every input value meets every kernel value of its group.
        inputs = args[0][str(attrs["data_layout"]).index("C")]
        return 2 * prod(args[0]) * prod(args[1]) // max(1, inputs)
    if op in ("nn.dense", "nn.matmul", "nn.batch_matmul"):
        return 2 * size * _depth(op, attrs, args[0])
    if op in ("nn.max_pool2d", "nn.avg_pool2d"):
        return size * prod(int(n) for n in attrs["pool_size"])
    if op in REDUCTIONS or op.startswith(("nn.global_", "nn.adaptive_")):
        return prod(args[0]) * (3 if op == "variance" else 1)
    if op in ("image.resize2d", "nn.upsampling"):
        return 2 * size * _RESIZE_TAPS.get(attrs["method"], 4)
    return size * _PER_ELEMENT.get(op, 0)


def _depth(op: str, attrs: dict[str, Any], left: Shape) -> int:
    return left[-2] if op != "nn.dense" and attrs["transpose_a"] else left[-1]
