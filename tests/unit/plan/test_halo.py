"""The boxes that many pieces read, against each piece asked by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.examples import examples
from tests.unit.graph.cases import convolutions, poolings
from tests.unit.graph.graphs import conv2d, node, single
from tests.unit.plan.networks import Network
from tvm_codl.graph.opgraph import Operator, OpGraph, Shape
from tvm_codl.graph.slab import Need
from tvm_codl.graph.split import NoSplit, axes, piece
from tvm_codl.plan.halo import read_boxes


def box(shape: Shape, need: Need) -> list[tuple[int, int]]:
    result = [(0, extent) for extent in shape]
    if need is not None:
        result[need.axis] = (need.lo, need.hi)
    return result


def check(operator: Operator, graph: OpGraph) -> int:
    """All pieces of all axes; how many there were."""
    count = 0
    for axis in axes(operator, graph).values():
        places = range(0, axis.extent + 1, axis.granule)
        parts = [(lo, hi) for lo in places for hi in places if lo < hi and (lo == 0 or hi == places[-1])]
        needs = [piece(operator, graph, axis.name, lo, hi).inputs for lo, hi in parts]
        lo, hi = (np.array([part[k] for part in parts], dtype=np.int64) for k in (0, 1))
        found = read_boxes(operator, graph, axis, lo, hi)
        for index, tensor in enumerate(operator.inputs):
            wanted = [box(graph.tensors[tensor].shape, need[index]) for need in needs]
            np.testing.assert_array_equal(found[index], wanted)
        count += len(parts)
    return count


@settings(max_examples=examples(80))
@given(convolutions())
def test_convolutions(case: tuple[Operator, OpGraph]) -> None:
    check(*case)


@settings(max_examples=examples(40))
@given(poolings())
def test_poolings(case: tuple[Operator, OpGraph]) -> None:
    check(*case)


@pytest.mark.parametrize("shape", [(1, 7, 5, 12), (3, 4), (2, 6, 8)])
def test_elementwise_with_broadcast_and_with_an_input_read_twice(shape: tuple[int, ...]) -> None:
    scale = (1,) * (len(shape) - 1) + shape[-1:]
    body = (node("multiply", {}, "i0 i1", shape), node("sigmoid", {}, "n0", shape), node("add", {}, "n1 c0", shape))
    assert check(*single([shape, scale], [shape[-1:]], *body))
    assert check(*single([shape], [], node("nn.relu", {}, "i0", shape), node("add", {}, "n0 i0", shape)))


def test_a_convolution_with_a_residual() -> None:
    made = Network(1, 12, 12, 8)
    made.add(made.conv(0, 8, stride=1), 0)
    graph = made.graph()
    assert all(check(operator, graph) for operator in graph.operators)


def test_what_is_no_piece_is_refused() -> None:
    operator, graph = conv2d(4, 4, 4, 1, strides=[1, 1], dilation=[1, 1], padding=[0, 0, 0, 0], groups=2)
    axis = axes(operator, graph)["channels"]
    with pytest.raises(NoSplit, match="between groups of 2"):
        read_boxes(operator, graph, axis, np.array([0, 0]), np.array([2, 1]))
