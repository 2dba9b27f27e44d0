from __future__ import annotations

from tests.unit.graph.graphs import CONV, POOL, node
from tvm_codl.graph.flops import node_flops


def test_convolutions() -> None:
    plain = node("nn.conv2d", {**CONV, "channels": 8}, "i0 c0", (1, 5, 5, 8))
    assert node_flops(plain, ((1, 5, 5, 4), (3, 3, 4, 8))) == 2 * 25 * 8 * 9 * 4
    depthwise = node("nn.conv2d", {**CONV, "channels": 8, "groups": 8}, "i0 c0", (1, 5, 5, 8))
    assert node_flops(depthwise, ((1, 5, 5, 8), (3, 3, 8, 1))) == 2 * 25 * 8 * 9
    transposed = node("nn.conv2d_transpose", {"data_layout": "NCHW"}, "i0 c0", (1, 3, 10, 10))
    assert node_flops(transposed, ((1, 4, 5, 5), (4, 3, 2, 2))) == 2 * 25 * 4 * 3 * 4


def test_products() -> None:
    assert node_flops(node("nn.dense", {"units": 5}, "i0 c0", (2, 5)), ((2, 3), (5, 3))) == 2 * 2 * 5 * 3
    attrs = {"transpose_a": True, "transpose_b": False}
    assert node_flops(node("nn.batch_matmul", attrs, "i0 i1", (2, 3, 5)), ((2, 4, 3), (2, 4, 5))) == 2 * 2 * 3 * 5 * 4


def test_others() -> None:
    assert node_flops(node("nn.relu", {}, "i0", (2, 5)), ((2, 5),)) == 10
    assert node_flops(node("nn.max_pool2d", POOL, "i0", (1, 3, 3, 2)), ((1, 4, 4, 2),)) == 18 * 4
    assert node_flops(node("transpose", {"axes": [1, 0]}, "i0", (2, 5)), ((5, 2),)) == 0
    assert node_flops(node("no.such.operator", {}, "i0", (2, 5)), ((5, 2),)) == 0
