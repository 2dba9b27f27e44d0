from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.unit.plan.networks import convolutions
from tests.unit.plan.test_search import legal
from tvm_codl.cost.sharing import SharingCost
from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.adaptive import PhoneState, adaptive_plans, placements, slowed
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import replayed, search, tables
from tvm_codl.plan.settings import Settings


class Even:
    """Two processors as fast as each other."""

    def predict(self, workloads: Any, processor: str) -> NDArray[np.float64]:
        return np.array([(w.flops + 1) * 1e-6 for w in workloads])


def problem(graph: OpGraph) -> Problem:
    return Problem(graph, legal(graph), Even(), SharingCost(0.0, 0.0, 0.0, 0.0), "net", "phone")


def first(one: Problem) -> Plan:
    return search(one.graph, one.options, one.sharing, one.axes)


def share_of_cpu(one: Problem, plan: Plan) -> float:
    """The CPU's share of all units, each operator counted once."""
    shares = []
    for line in plan.operators:
        p = line.placement
        shares.append({"cpu": 1.0, "gpu": 0.0}.get(p.on, p.at / max(1, extent(one, line.operator, p.axis))))
    return float(np.mean(shares))


def extent(one: Problem, operator: int, axis: str) -> int:
    return one.axes[operator][axis].extent if axis else 1


def test_each_state_takes_work_from_the_slow_processor() -> None:
    one = problem(convolutions(4, 32))
    plans = adaptive_plans(one, first(one))
    assert plans[0].state == "calm"
    shares = {
        state: [share_of_cpu(one, p.plan) for p in plans if p.state == state]
        for state in ("calm", "cpu busy", "gpu throttled")
    }
    assert shares["cpu busy"] and max(shares["cpu busy"]) < shares["calm"][0]
    assert shares["gpu throttled"] and min(shares["gpu throttled"]) > shares["calm"][0]


@settings(max_examples=25, deadline=None)
@given(st.floats(1.0, 8.0), st.floats(1.0, 8.0), st.integers(1, 3))
def test_a_states_plan_is_at_least_as_good_there_as_the_first(cpu: float, gpu: float, count: int) -> None:
    one = problem(convolutions(count, 16))
    state = PhoneState("slow", "cpu busy", cpu, gpu)
    plans = adaptive_plans(one, first(one), (state,))
    options = slowed(one.options, state)
    costs = tables(one.graph, options, one.sharing, one.axes)

    def there(plan: Plan) -> float:
        choice = [[c.placement for c in options[line.operator]].index(line.placement) for line in plan.operators]
        return replayed(one.graph, options, one.sharing, costs, choice).total_ms

    times = [there(p.plan) for p in plans]
    assert min(times) == pytest.approx(times[-1], rel=1e-9)


def test_plans_that_place_alike_are_one() -> None:
    one = problem(convolutions())
    same = PhoneState("as calm", "cpu busy")
    assert [p.name for p in adaptive_plans(one, first(one), (same, same))] == ["calm"]


def test_all_plans_have_the_first_ones_settings() -> None:
    one = problem(convolutions(4, 32))
    mine = Settings(flush_every=4)
    given_plan = Plan("net", "phone", first(one).operators, settings=mine)
    assert {p.plan.settings for p in adaptive_plans(one, given_plan)} == {mine}
    assert len({placements(p.plan) for p in adaptive_plans(one, given_plan)}) == len(adaptive_plans(one, given_plan))


def test_a_state_that_makes_a_processor_faster_is_refused() -> None:
    one = problem(convolutions())
    with pytest.raises(UserError, match="makes a processor faster"):
        adaptive_plans(one, first(one), (PhoneState("odd", "cpu busy", cpu=0.5),))
