from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.examples import examples
from tests.unit.graph.cases import convolutions, poolings
from tests.unit.graph.graphs import node, single
from tests.unit.plan.networks import Network
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.graph.split import NoSplit, axes
from tvm_codl.records.pieces import NUMBERS, Pieces, add_halves, numbers_of
from tvm_codl.records.workload import workloads


def check(operator: Operator, graph: OpGraph) -> int:
    """All halves along all axes at once, against one by one; how many axes there are."""
    for axis in axes(operator, graph).values():
        cuts = list(range(axis.granule, axis.extent, axis.granule))
        parts = [(0, at) for at in cuts] + [(at, axis.extent) for at in cuts]
        slow = workloads(operator, graph, [(axis.name, lo, hi) for lo, hi in parts])
        first, second = Pieces(graph), Pieces(graph)
        add_halves(first, second, operator, axis.name, [((0, at), (at, axis.extent)) for at in cuts])
        assert [*first, *second] == slow
        assert [*first.keys, *second.keys] == [w.key for w in slow]
        assert np.array_equal(np.concatenate([first.numbers, second.numbers]), numbers_of(slow))
        assert [*first.sizes, *second.sizes] == [hi - lo for lo, hi in parts]
        starts = [max(at - axis.granule, axis.granule) for at in cuts]
        halves = [((0, at), (start, axis.extent)) for at, start in zip(cuts, starts, strict=True)]
        first, second = Pieces(graph), Pieces(graph)
        add_halves(first, second, operator, axis.name, halves)
        assert [*second] == workloads(operator, graph, [(axis.name, at, axis.extent) for at in starts])
        assert [*first] == slow[: len(cuts)]
    return len(axes(operator, graph))


@settings(max_examples=examples(60))
@given(convolutions())
def test_convolutions(case: tuple[Operator, OpGraph]) -> None:
    check(*case)


@settings(max_examples=examples(40))
@given(poolings())
def test_poolings(case: tuple[Operator, OpGraph]) -> None:
    check(*case)


@pytest.mark.parametrize("shape", [(1, 7, 5, 12), (3, 4), (2, 6, 8)])
def test_elementwise(shape: tuple[int, ...]) -> None:
    scale = (1,) * (len(shape) - 1) + shape[-1:]
    body = (node("multiply", {}, "i0 i1", shape), node("sigmoid", {}, "n0", shape), node("add", {}, "n1 c0", shape))
    operator, graph = single([shape, scale], [shape[-1:]], *body)
    assert check(operator, graph) > 0


def test_operators_that_read_an_input_twice() -> None:
    shape = (1, 8, 6, 4)
    assert check(*single([shape], [], node("nn.relu", {}, "i0", shape), node("add", {}, "n0 i0", shape))) == 3
    made = Network(1, 12, 12, 8)
    made.add(made.conv(0, 8), 0)
    graph = made.graph()
    for operator in graph.operators:
        assert check(operator, graph) == 2


def test_whole_operators_lie_between_pieces() -> None:
    made = Network(1, 12, 12, 8)
    made.conv(0, 16)
    graph = made.graph()
    pieces = Pieces(graph)
    pieces.add(graph.operators[0], "height", [0, 3], [3, 12])
    pieces.add(graph.operators[0])
    single_ones = workloads(graph.operators[0], graph, [("height", 0, 3), ("height", 3, 12), ("", 0, 0)])
    assert list(pieces) == single_ones and pieces[-1] == single_ones[-1] and len(pieces) == 3
    assert pieces.numbers.shape == (3, len(NUMBERS)) and list(pieces.extents) == [12, 12, 1]
    assert list(Pieces(graph)) == [] and Pieces(graph).numbers.shape == (0, len(NUMBERS))
    with pytest.raises(NoSplit):
        pieces.add(graph.operators[0], "depth", [0], [1])
    with pytest.raises(IndexError):
        pieces[3]
