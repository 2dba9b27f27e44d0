from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.unit.plan.baselines.test_baselines import problem
from tests.unit.plan.networks import Network, convolutions
from tests.unit.plan.test_candidates import ByFlops
from tvm_codl.cost.contention import Contention, Side
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.calibration import Calibration
from tvm_codl.plan.plan import Placement, Plan, single_processor
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import search
from tvm_codl.plan.shortlist import differ, follow_runs, make_shortlist
from tvm_codl.plan.verify import verify_plan
from tvm_codl.records.workload import Workload

SHARING = TransferCost(0.02, 0.02, 0.0, 0.3, contention=Contention(Side(0.05), Side(0.1)))


def single(plan: Plan) -> bool:
    return bool(single_processor(place.on for place in plan.placements))


class Partial(ByFlops):
    """A device of which each processor does not run operators with so many output channels, nor pieces of them."""

    def __init__(self, **channels: int) -> None:
        self.channels = channels

    def predict(self, workloads: Sequence[Workload], processor: str) -> NDArray[np.float64]:
        broken = [(w.whole or w).out_c == self.channels.get(processor) for w in workloads]
        return np.where(broken, np.inf, super().predict(workloads, processor))


def narrow_wide() -> OpGraph:
    """Three convolutions of 32, 48 and 40 channels."""
    network = Network(1, 24, 24, 32)
    return network.graph(network.conv(network.conv(network.conv(0, 32), 48), 40))


def found(given: Problem) -> tuple[Problem, list]:  # type: ignore[type-arg]
    best = search(given.graph, given.options, given.sharing, given.axes, "net", "phone").plan
    return given, make_shortlist(best)


def test_a_plan_that_was_fast_before_is_among_them_however_slow_it_is_predicted() -> None:
    given = problem(convolutions(6, size=24), ByFlops(), SHARING)
    best = search(given.graph, given.options, given.sharing, given.axes).plan
    slow, slower = (given.place([Placement("split", "height", at)] * 6, "by hand") for at in (2, 1))
    assert slow.predicted_ms > best.predicted_ms * 1.15
    assert [one.plan for one in make_shortlist(best, [slow, slower])] == [best, slow]
    assert [one.plan for one in make_shortlist(best)] == [best]


def test_a_plan_that_hardly_differs_is_not_run_beside_it() -> None:
    given = problem(convolutions(6, size=24), ByFlops(), SHARING)
    best = search(given.graph, given.options, given.sharing, given.axes).plan
    assert make_shortlist(best, [best]) == make_shortlist(best)
    other = given.place([Placement("split", "height", 2)] * 6, "by hand")
    assert differ(other, best) and not differ(best, best)


def share_of_cpu(given: Problem, plan: Plan) -> float:
    places = [(given.axes[o.operator].get(o.placement.axis), o.placement) for o in plan.operators]
    return sum(place.at / axis.extent if axis else float(place.on == "cpu") for axis, place in places)


def test_where_one_processor_runs_faster_than_predicted_it_gets_more_of_the_work() -> None:
    given, chosen = found(problem(convolutions(6, size=24), ByFlops(), SHARING))
    first, *others = follow_runs(given, chosen, Calibration(cpu=0.5))
    assert others == chosen[1:] and len(chosen) >= 1
    assert share_of_cpu(given, first.plan) > share_of_cpu(given, chosen[0].plan)
    verify_plan(first.plan, given.graph, given.axes)
    for alike in (Calibration(), Calibration(0.5, 0.5), Calibration(1.0, 1.05)):
        assert follow_runs(given, chosen, alike) == chosen


def test_where_sharing_is_hopeless_there_is_nothing_to_look_at() -> None:
    given, chosen = found(problem(convolutions(3), ByFlops(), TransferCost(1e3, 1e3, 1e3, 1e3)))
    assert chosen == []
    alone = given.single_processor_plans()
    assert alone["cpu"].predicted_ms < alone["gpu"].predicted_ms
    assert all(single(plan) for plan in alone.values())


def test_a_processor_that_does_not_run_every_operator_is_no_plan_by_itself() -> None:
    given, chosen = found(problem(narrow_wide(), Partial(gpu=48), SHARING))
    assert list(given.single_processor_plans()) == ["cpu"]
    assert chosen
    for one in chosen:
        assert one.plan.predicted_ms > 0
        assert one.plan.operators[1].placement == Placement("cpu")


def test_where_neither_processor_runs_all_only_plans_of_both_are_listed() -> None:
    given, chosen = found(problem(narrow_wide(), Partial(gpu=48, cpu=40), SHARING))
    assert given.single_processor_plans() == {}
    assert chosen
    for one in chosen:
        assert one.plan.predicted_ms > 0
        assert [line.placement.on for line in one.plan.operators[1:]] == ["cpu", "gpu"]


def test_a_plan_of_which_a_part_cannot_run_is_no_contender() -> None:
    given, chosen = found(problem(narrow_wide(), Partial(gpu=48), SHARING))
    halves = given.place([Placement("split", "height", 12)] * 3, "by hand")
    assert halves.predicted_ms == 0, "a plan's JSON has no infinity"
    assert make_shortlist(chosen[0].plan, [halves]) == chosen
