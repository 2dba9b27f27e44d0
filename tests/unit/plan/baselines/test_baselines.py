from __future__ import annotations

from math import lcm
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.examples import examples
from tests.unit.plan.networks import Network, convolutions
from tests.unit.plan.test_candidates import ByFlops
from tests.unit.plan.test_search import legal
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import Axis
from tvm_codl.plan.baselines.codl import codl
from tvm_codl.plan.baselines.greedy import greedy_chains
from tvm_codl.plan.baselines.grid import STEPS, nearest_cut
from tvm_codl.plan.baselines.planners import PLANNERS, layer_wise, one_ratio
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.costs import build_costs
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.verify import verify_plan

FREE = TransferCost(0.0, 0.0, 0.0, 0.0)


class Uneven:
    """Two processors of which each is the faster one for some operators: by their channels."""

    def predict(self, workloads: Any, processor: str) -> NDArray[np.float64]:
        return np.array([(w.flops + 1) * (1e-6 if (w.out_c > 16) == (processor == "cpu") else 3e-6) for w in workloads])


class Even:
    """Two processors as fast as each other."""

    def predict(self, workloads: Any, processor: str) -> NDArray[np.float64]:
        return np.array([(w.flops + 1) * 1e-6 for w in workloads])


def problem(graph: OpGraph, costs: Any = None, sharing: TransferCost = FREE) -> Problem:
    return Problem(graph, legal(graph), costs or ByFlops(), sharing, "net", "phone")


def simulated_ms(given: Problem, plan: Plan) -> float:
    """Simulated over a table of many options, not of the plan's alone."""
    graph = given.graph
    options: dict[int, tuple[Candidate, ...]] = {}
    choice = []
    for node, line in enumerate(plan.operators):
        p = line.placement
        one = given.split([(node, p)])[0] if p.on == "split" else given.whole(line.operator)[p.on == "gpu"]
        options[line.operator] = (*given.options[line.operator], one)
        choice.append(len(options[line.operator]) - 1)
    costs = build_costs(graph, options, given.sharing, given.axes)
    return costs.simulate(choice).total_ms


@st.composite
def graphs(draw: Any) -> OpGraph:
    network = Network(1, draw(st.integers(2, 20)), 8, draw(st.sampled_from([3, 8, 16])))
    ends = [0]
    for _ in range(draw(st.integers(1, 6))):
        source = draw(st.sampled_from(ends))
        kind = draw(st.sampled_from(["conv1", "conv3", "add", "opaque"]))
        if kind == "add":
            ends.append(network.add(source, source))
        elif kind == "opaque":
            ends.append(network.opaque(source))
        else:
            ends.append(network.conv(source, draw(st.sampled_from([2, 7, 16, 40])), int(kind[-1])))
    return network.graph()


@pytest.mark.parametrize("name", PLANNERS)
@given(graph=graphs(), wait=st.sampled_from([0.0, 0.01, 1.0]))
@settings(max_examples=examples(30))
def test_every_planner_makes_a_legal_plan_whose_prediction_is_its_simulated_time(
    name: str, graph: OpGraph, wait: float
) -> None:
    given = problem(graph, Uneven(), TransferCost(wait, wait / 2, 1.0, 1.0))
    plan = PLANNERS[name](given)
    verify_plan(plan, graph, given.axes)
    assert (plan.model, plan.device) == ("net", "phone")
    assert plan.predicted_ms == pytest.approx(simulated_ms(given, plan), abs=1e-6)


def test_layer_wise_takes_the_faster_processor_whatever_it_costs_to_share() -> None:
    network = Network(1, 16, 16, 16)
    network.conv(network.conv(network.conv(0, 32), 16), 32)
    plan = layer_wise(problem(network.graph(), Uneven(), TransferCost(100.0, 100.0)))
    assert [line.placement.on for line in plan.operators] == ["cpu", "gpu", "cpu"]
    assert plan.predicted_ms > 200


def test_one_ratio_cuts_the_channels_of_all_alike_at_the_best_of_the_tenths() -> None:
    network = Network(1, 16, 16, 16)
    network.opaque(network.conv(network.conv(0, 40), 80))
    given = problem(network.graph())
    plan = one_ratio(given)
    # The CPU is three times as fast: seven or eight tenths, and of 40 channels eight tenths are a multiple of four.
    assert [line.placement for line in plan.operators[:2]] == [
        Placement("split", "channels", 32),
        Placement("split", "channels", 64),
    ]
    assert plan.operators[2].placement.on == "cpu"


def test_greedy_chains_cut_alike_what_costs_to_hand_over() -> None:
    given = problem(convolutions(4, size=40), sharing=TransferCost(0.001, 0.001, 0.0, 50.0))
    plan = greedy_chains(given)
    assert {line.placement.axis for line in plan.operators} == {"height"}
    assert len({line.placement.at for line in plan.operators}) == 1
    assert {line.chain for line in plan.operators} == {0}
    assert plan.predicted_ms < min(layer_wise(given).predicted_ms, one_ratio(given).predicted_ms)


def test_greedy_chains_make_the_rows_at_a_cut_twice_where_handing_them_over_is_dearer() -> None:
    network, tensor = Network(1, 160, 4, 1), 0
    for channels in (32, 32, 32, 32, 1):
        tensor = network.conv(tensor, channels)
    given = problem(network.graph(), Even(), TransferCost(0.01, 0.01, 400.0, 0.0))
    plan = greedy_chains(given)
    verify_plan(plan, given.graph, given.axes)
    # Each 3x3 window behind an operator in its chain reads one row more beyond the cut.
    assert [line.placement for line in plan.operators] == [
        Placement("split", "height", 80, (windows, windows)) for windows in (3, 2, 1, 0, 0)
    ]
    assert [line.chain for line in plan.operators] == [0, 0, 0, 0, -1]
    assert plan.predicted_ms == pytest.approx(simulated_ms(given, plan), abs=1e-6)
    cheap = greedy_chains(problem(network.graph(), Even()))
    assert all(line.placement.over == (0, 0) for line in cheap.operators)


def test_greedy_chains_without_anything_to_share_give_each_operator_its_own_best_tenth() -> None:
    given = problem(convolutions(3, size=40))
    ours = greedy_chains(given)
    cuts = [("height", 4 * tenth) for tenth in STEPS] + [("channels", 4 * vectors) for vectors in range(1, 8)]
    best = [
        min(
            [*given.whole(line.operator), *given.split([(node, Placement("split", *cut)) for cut in cuts])],
            key=lambda one: one.ms,
        ).ms
        for node, line in enumerate(ours.operators)
    ]
    assert [line.planned_ms for line in ours.operators] == pytest.approx(best)


def test_codl_makes_chains_in_rows_only_and_each_processor_makes_what_it_reads_there() -> None:
    network, tensor = Network(1, 160, 4, 1), 0
    for channels in (32, 32, 32, 32, 1):
        tensor = network.conv(tensor, channels)
    # What crosses is charged once for a chain, and for every operator by itself.
    given = problem(network.graph(), Even(), TransferCost(0.01, 0.01, 20.0, 0.0))
    plan = codl(given)
    verify_plan(plan, given.graph, given.axes)
    assert [line.placement for line in plan.operators] == [
        Placement("split", "height", 80, (windows, windows)) for windows in (4, 3, 2, 1, 0)
    ]
    assert {line.chain for line in plan.operators} == {0}


def test_codl_charges_every_operator_as_if_its_tensors_came_from_the_gpu() -> None:
    # The CPU is a little faster and the network lies wholly on it; a hand-over costs more than that, as CoDL counts.
    class CpuFirst(Even):
        def predict(self, workloads: Any, processor: str) -> NDArray[np.float64]:
            return super().predict(workloads, processor) * (1.0 if processor == "cpu" else 1.01)

    network, tensor = Network(1, 2, 2, 4), 0
    for _ in range(3):
        tensor = network.opaque(tensor)
    given = problem(network.graph(), CpuFirst(), TransferCost(1.0, 1.0, 0.0, 0.0))
    assert {line.placement.on for line in greedy_chains(given).operators} == {"cpu"}
    assert [line.placement.on for line in codl(given).operators][1:] == ["gpu", "gpu"]


def test_an_operator_that_one_processor_cannot_run_is_on_the_other() -> None:
    class NoGpu(ByFlops):
        def predict(self, workloads: Any, processor: str) -> NDArray[np.float64]:
            return super().predict(workloads, processor) + (np.inf if processor == "gpu" else 0.0)

    for planner in PLANNERS.values():
        plan = planner(problem(convolutions(3), NoGpu()))
        assert {line.placement for line in plan.operators} == {Placement("cpu")}
        assert 0 < plan.predicted_ms < np.inf


@given(st.sampled_from(["height", "channels", "columns"]), st.integers(1, 300), st.integers(1, 9))
def test_cuts_are_legal_and_as_near_as_their_unit_allows(name: str, extent: int, granule: int) -> None:
    axis = Axis(name, 1, extent, granule)
    for tenth in STEPS:
        at = nearest_cut(axis, tenth / 10)
        assert 0 <= at <= extent
        assert at in (0, extent) or at % granule == 0
        unit = granule if name == "height" or extent < 2 * lcm(granule, 4) else lcm(granule, 4)
        assert abs(at - extent * tenth / 10) <= unit / 2
