from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.examples import examples
from tests.unit.plan.networks import convolutions
from tests.unit.plan.test_search import legal
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.adaptive import PhoneState, adaptive_plans, candidates_in, plan_for
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.costs import build_costs
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import search
from tvm_codl.records.settings import Settings


class Even:
    """Two processors as fast as each other."""

    def predict(self, workloads: Any, processor: str) -> NDArray[np.float64]:
        return np.array([(w.flops + 1) * 1e-6 for w in workloads])


def problem(graph: OpGraph) -> Problem:
    return Problem(graph, legal(graph), Even(), TransferCost(0.0, 0.0, 0.0, 0.0), "net", "phone")


def first(one: Problem) -> Plan:
    return search(one.graph, one.options, one.sharing, one.axes).plan


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


@settings(max_examples=examples(25))
@given(st.floats(1.0, 8.0), st.floats(1.0, 8.0), st.integers(1, 3))
def test_a_states_plan_is_at_least_as_good_there_as_the_first(cpu: float, gpu: float, count: int) -> None:
    one = problem(convolutions(count, 16))
    state = PhoneState("slow", "cpu busy", cpu, gpu)
    plans = adaptive_plans(one, first(one), (state,))
    options = candidates_in(one, state)
    costs = build_costs(one.graph, options, one.sharing, one.axes)

    def there(plan: Plan) -> float:
        choice = [[c.placement for c in options[line.operator]].index(line.placement) for line in plan.operators]
        return costs.simulate(choice).total_ms

    # The first plan's cuts need not be among the candidates there.
    known = [
        p for p in plans if all(o.placement in [c.placement for c in options[o.operator]] for o in p.plan.operators)
    ]
    found = next((p for p in plans if p.name == "slow"), plans[0])
    assert there(found.plan) == pytest.approx(min(there(p.plan) for p in known), rel=1e-9)


def test_plans_that_place_alike_are_one() -> None:
    one = problem(convolutions())
    same = PhoneState("as calm", "gpu throttled")
    assert [p.name for p in adaptive_plans(one, first(one), (same, same))] == ["calm"]


def test_all_plans_have_the_first_ones_settings() -> None:
    one = problem(convolutions(4, 32))
    mine = Settings(flush_every=4)
    given_plan = Plan("net", "phone", first(one).operators, settings=mine)
    assert {p.plan.settings for p in adaptive_plans(one, given_plan)} == {mine}
    assert len({p.plan.placements for p in adaptive_plans(one, given_plan)}) == len(adaptive_plans(one, given_plan))


def test_a_state_that_makes_a_processor_faster_is_refused() -> None:
    one = problem(convolutions())
    with pytest.raises(UserError, match="makes a processor faster"):
        adaptive_plans(one, first(one), (PhoneState("odd", "cpu busy", cpu=0.5),))


def test_dear_meetings_are_few() -> None:
    """Rows are recomputed so that the processors need not wait."""
    one = problem(convolutions(6, 48))

    def meetings(state: PhoneState) -> int:
        plan = plan_for(one, state)
        options = {line.operator: (Candidate(line.placement, 1.0, 1.0),) for line in plan.operators}
        crossed = build_costs(one.graph, options, one.sharing, one.axes).crossings.values()
        return sum(1 for c in crossed if c.to_cpu.item(0, 0) or c.to_gpu.item(0, 0))

    dear = PhoneState("few", "cpu busy", cpu=2.0, wait_ms=3.0, windows=8)
    plan = plan_for(one, dear)
    assert meetings(dear) < meetings(PhoneState("many", "cpu busy", cpu=2.0))
    assert any(line.placement.on == "split" for line in plan.operators)


def test_the_gpu_alone_is_among_the_plans_for_a_busy_cpu() -> None:
    one = problem(convolutions(4, 32))
    (alone,) = [p for p in adaptive_plans(one, first(one)) if {o.placement.on for o in p.plan.operators} == {"gpu"}]
    assert alone.state == "cpu busy"
    throttled = PhoneState("hot", "gpu throttled", gpu=1.5)
    assert "gpu only" not in [p.name for p in adaptive_plans(one, first(one), (throttled,))]


def test_a_run_need_not_end_with_work_of_the_cpu() -> None:
    one = problem(convolutions(4, 32))
    free, dear = PhoneState("free", "cpu busy"), PhoneState("dear", "cpu busy", end_ms=1e6)
    assert plan_for(one, free).operators[-1].placement.on == "split"
    assert [line.placement.on for line in plan_for(one, dear).operators[-2:]] == ["split", "gpu"]
    with pytest.raises(UserError, match="makes a processor faster"):
        adaptive_plans(one, first(one), (PhoneState("odd", "cpu busy", end_ms=-1.0),))
