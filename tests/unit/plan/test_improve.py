"""Moves that shorten a plan's simulated run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.plan.networks import Network
from tests.unit.plan.test_exact import Drawn, legal, networks
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.costs import build_costs
from tvm_codl.plan.improve import improve
from tvm_codl.plan.plan import Placement
from tvm_codl.plan.search import search

COST = TransferCost(0.01, 0.01, 0.0, 0.0)


def two_branches() -> tuple[OpGraph, dict[int, Sequence[Candidate]]]:
    """Two operators that cannot be split, on each of two branches; 1 ms on the CPU, 1.2 on the GPU."""
    network = Network(1, 8, 8, 16)
    left, right = network.opaque(0), network.opaque(0)
    network.add(network.opaque(left), network.opaque(right))
    graph = network.graph()
    pair = (Candidate(Placement("cpu"), 1.0, 0.0), Candidate(Placement("gpu"), 0.0, 1.2))
    options: dict[int, Sequence[Candidate]] = {operator.id: pair for operator in graph.operators}
    options[4] = (Candidate(Placement("cpu"), 0.01, 0.0), Candidate(Placement("gpu"), 0.0, 0.01))
    return graph, options


def test_branches_of_whole_operators_run_side_by_side() -> None:
    graph, options = two_branches()
    sums = search(graph, options, COST, legal(graph), simulations=0)
    assert {o.placement.on for o in sums.plan.operators} == {"cpu"}, "added up, the slower processor is no help"
    assert sums.plan.predicted_ms == pytest.approx(4.01)
    found = search(graph, options, COST, legal(graph))
    assert found.plan.predicted_ms == pytest.approx(2.42, abs=0.03)
    places = [o.placement.on for o in found.plan.operators]
    assert places[0] == places[2] != places[1] == places[3]
    assert found.total_ms > found.bound_ms == sums.total_ms


@given(networks(), st.sampled_from([0.0, 0.05, 0.5]), st.integers(0, 40), st.data())
@settings(max_examples=examples(40))
def test_no_plan_becomes_worse_and_no_more_plans_are_simulated_than_said(
    drawn: Drawn, wait: float, most: int, data: st.DataObject
) -> None:
    graph, options = drawn
    sharing = TransferCost(wait, wait / 2, 10.0, 5.0)
    costs = build_costs(graph, options, sharing, legal(graph))
    any_choice = st.tuples(*(st.integers(0, len(options[o.id]) - 1) for o in graph.operators))
    starts = data.draw(st.lists(any_choice, min_size=1, max_size=3, unique=True))
    asked: list[tuple[int, ...]] = []

    def score(choice: tuple[int, ...]) -> float:
        asked.append(choice)
        return costs.simulate(choice).total_ms

    found = improve(costs, starts, score, most)
    assert len(asked) == len(set(asked)) <= most + len(starts)
    assert score(found) <= min(map(score, starts))
    assert improve(costs, starts, score, most) == found
    if most == 0:
        assert found == min(starts, key=score)


def test_a_single_operator_moves_where_the_score_says_so() -> None:
    """The score is made up: it wants the second operator on the GPU."""
    graph, options = two_branches()
    costs = build_costs(graph, options, COST, legal(graph))
    found = improve(costs, [(0, 0, 0, 0, 0)], lambda choice: float(choice != (0, 1, 0, 0, 0)))
    assert found == (0, 1, 0, 0, 0)


def test_a_plan_that_is_known_is_never_lost() -> None:
    graph, options = two_branches()
    sums = search(graph, options, COST, legal(graph), simulations=0)
    found = search(graph, options, COST, legal(graph), simulations=0, starts=[(0, 1, 0, 1, 0)])
    assert [o.placement.on for o in found.plan.operators] == ["cpu", "gpu", "cpu", "gpu", "cpu"]
    assert found.plan.predicted_ms < sums.plan.predicted_ms
