"""Cuts and halo recompute that follow from the operators behind: nothing crosses, and the search makes chains of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.plan.networks import Network, convolutions
from tests.unit.plan.test_candidates import ByFlops
from tests.unit.plan.test_exact import legal
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.aligned import MOST_ALIGNED, MOST_WINDOWS, aligned
from tvm_codl.plan.candidates import candidates
from tvm_codl.plan.crossing import crossing, held, needed
from tvm_codl.plan.plan import Placement, uniform_plan
from tvm_codl.plan.search import search
from tvm_codl.plan.verify import verify_plan


@st.composite
def runs(draw: Any) -> OpGraph:
    network, tensor = Network(1, draw(st.integers(8, 40)), 8, 16), 0
    for _ in range(draw(st.integers(2, 6))):
        before = tensor
        tensor = network.conv(tensor, 16, draw(st.sampled_from([1, 3, 5])), draw(st.sampled_from([1, 1, 2])))
        if network.tensors[before].shape == network.tensors[tensor].shape and draw(st.booleans()):
            tensor = network.add(tensor, before)
    return network.graph()


@given(runs(), st.floats(0.1, 0.9))
@settings(max_examples=examples(40))
def test_what_follows_is_legal_and_takes_nothing_across(graph: OpGraph, share: float) -> None:
    """Each serves a placement of an operator behind it that is a likely cut or follows from one."""
    own = legal(graph)
    likely = {
        (id, name): (max(1, int(share * axis.extent / axis.granule)) * axis.granule,)
        for id, found in own.items()
        for name, axis in found.items()
    }
    more = aligned(graph, own, likely, likely)
    placed = {
        o.id: [*more[o.id], *(Placement("split", name, at) for (id, name), (at,) in likely.items() if id == o.id)]
        for o in graph.operators
    }
    for operator in graph.operators:
        assert len(more[operator.id]) <= MOST_ALIGNED
        (tensor,) = (graph.tensors[id] for id in operator.outputs)
        for placement in more[operator.id]:
            plan = uniform_plan(graph, "cpu")
            lines = [type(o)(o.operator, o.name, placement) if o.operator == operator.id else o for o in plan.operators]
            verify_plan(type(plan)("", "", tuple(lines)), graph, own)
            has = held(tensor, [placement], own[operator.id])
            wants = [
                parts
                for reader in graph.operators
                for id, parts in zip(
                    reader.inputs, needed(reader, graph, placed[reader.id], own[reader.id]), strict=True
                )
                if id == tensor.id
            ]
            crossings = [crossing(tensor, has, parts) for parts in wants]
            assert any((crosses.to_cpu + crosses.to_gpu == 0).any() for crosses in crossings)


def test_a_run_of_windows_reaches_a_few_operators_back() -> None:
    graph = convolutions(6, size=40)
    own = legal(graph)
    likely = {(id, "height"): (20,) for id in own}
    more = aligned(graph, own, likely, likely)
    assert [len(more[o.id]) for o in graph.operators] == [3, 3, 3, 2, 1, 0]
    assert more[0] == [Placement("split", "height", 20, (n, n)) for n in range(1, MOST_WINDOWS + 1)]


def test_a_stride_behind_is_a_cut_at_twice_as_many_rows() -> None:
    network = Network(1, 40, 8, 16)
    network.conv(network.conv(network.conv(0, 16), 16, 1, 2), 16)
    graph = network.graph()
    own = legal(graph)
    likely = {(2, "height"): (7,)}
    more = aligned(graph, own, likely, likely)
    # The 3x3 one behind needs a row more on either side; a 1x1 of stride 2 reads every other row, from 0 to 14.
    assert more[1] == [Placement("split", "height", 7, (1, 1))]
    assert more[0] == [Placement("split", "height", 13, (2, 1))]


def narrow(rows: int, *strides: int) -> OpGraph:
    """A run of 3x3 convolutions whose rows are short, so that halo recompute costs little."""
    network, tensor = Network(1, rows, 16, 32), 0
    for stride in strides:
        tensor = network.conv(tensor, 32, 3, stride)
    return network.graph()


def test_expensive_waits_make_a_run_one_chain_with_halo_recompute() -> None:
    graph = narrow(160, 1, 1, 1, 1)
    options = candidates(graph, legal(graph), ByFlops())
    plan = search(graph, options, TransferCost(6.0, 6.0), legal(graph)).plan
    assert [o.placement.axis for o in plan.operators] == ["height"] * 4
    assert [o.placement.over for o in plan.operators] == [(3, 3), (2, 2), (1, 1), (0, 0)]
    assert [o.chain for o in plan.operators] == [0, 0, 0, 0]
    assert all(o.share_ms == 0.0 for o in plan.operators[:-1]), "nothing crosses inside"


def test_free_waits_need_no_halo_recompute() -> None:
    graph = narrow(160, 1, 1, 1, 1)
    options = candidates(graph, legal(graph), ByFlops())
    assert any(any(option.placement.over) for option in options[0])
    plan = search(graph, options, TransferCost(0.0, 0.0, 0.0, 0.0), legal(graph)).plan
    assert {o.placement.on for o in plan.operators} == {"split"}
    assert not any(any(o.placement.over) for o in plan.operators)


def test_a_run_through_a_stride_is_a_chain_too() -> None:
    graph = narrow(640, 1, 2, 1)
    options = candidates(graph, legal(graph), ByFlops())
    plan = search(graph, options, TransferCost(6.0, 6.0), legal(graph)).plan
    assert {o.placement.on for o in plan.operators} == {"split"}
    assert [o.chain for o in plan.operators] == [0, 0, 0]
    assert any(plan.operators[0].placement.over) and any(plan.operators[1].placement.over)
