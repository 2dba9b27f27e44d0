from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from tests.unit.plan.networks import Network
from tests.unit.plan.test_candidates import ByFlops
from tests.unit.plan.test_search import legal
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.explain.explanation import Explanation, Other, explain, explanation_text, restate
from tvm_codl.plan.explain.prices import Prices
from tvm_codl.plan.explain.text import WIDTH
from tvm_codl.plan.plan import Placement, Plan, uniform_plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import search
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

FREE = TransferCost(0.0, 0.0, 0.0, 0.0)
SHARED = TransferCost(0.002, 0.002, far_gpu_ms_per_mb=0.1)


class Learned(ByFlops):
    """Whole operators were measured to 1 %, pieces are predicted to 7 % on the CPU and to 20 % on the GPU."""

    def estimate(
        self, workloads: Sequence[Workload], processor: Processor
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        sure = [0.01 if w.cut is None else 0.07 if processor == "cpu" else 0.2 for w in workloads]
        return self.predict(workloads, processor), np.array(sure)

    def measured(self, key: str, processor: Processor) -> bool:
        return Workload.from_key(key).cut is None

    def gpu_variants(self, workloads: Sequence[Workload]) -> list[str]:
        return [f"direct, {w.kind} of {w.cut.hi - w.cut.lo if w.cut else 'all'}" for w in workloads]


def long_network(count: int = 100) -> OpGraph:
    network = Network(1, 24, 24, 16)
    tensor = 0
    for number in range(count):
        name = f"{number}_a_name_that_is_far_too_long_for_any_table_of_operators"
        kernel = 3 if number % 3 == 0 else 1
        tensor = network.opaque(tensor) if number % 10 == 9 else network.conv(tensor, 16, kernel, name=name)
    return network.graph()


def explained(graph: OpGraph, sharing: TransferCost, plan: Plan | None = None) -> tuple[Explanation, Prices, Plan]:
    problem = Problem(graph, legal(graph), Learned(), sharing, "net", "phone")
    found = plan or search(graph, problem.options, sharing, problem.axes, "net", "phone").plan
    prices = Prices.of(problem, [found])
    return explain(found, prices, Learned()), prices, found


def test_the_second_choice_is_what_the_plans_time_becomes_with_it() -> None:
    graph = long_network(12)
    found, prices, plan = explained(graph, TransferCost(0.002, 0.002))
    choice = prices.choice(plan)
    total = prices.times(choice).total_ms
    assert found.predicted_ms == pytest.approx(plan.predicted_ms, abs=1e-6)
    for node, line in enumerate(found.operators):
        for other in (line.second, line.otherwise):
            assert other is not None and other.placement != line.placement
            moved = [*choice]
            moved[node] = prices.index(node, other.placement)
            assert other.more_ms == pytest.approx(prices.times(moved).total_ms - total)
        assert line.second is not None and line.otherwise is not None
        assert line.second.more_ms <= line.otherwise.more_ms
        assert (line.otherwise.placement.on, line.otherwise.placement.axis) != (line.placement.on, line.placement.axis)
        assert sum(s.ms for s in line.shared) == pytest.approx(plan.operators[node].share_ms, abs=1e-6)
        assert line.here_ms == pytest.approx(plan.operators[node].planned_ms, abs=1e-6)
    assert {id for line in found.operators for id in line.chain} == {o.operator for o in plan.operators if o.chain >= 0}
    assert any(line.chain for line in found.operators)


def test_one_operator_alone_has_its_true_second_choice() -> None:
    network = Network(1, 40, 40, 32)
    network.conv(0, 32)
    found, prices, _ = explained(network.graph(), FREE)
    times = {c.placement: c.ms for c in prices.choices[0]}
    ranked = sorted(times, key=lambda placement: times[placement])
    (line,) = found.operators
    assert line.placement == ranked[0]
    assert line.second is not None and line.second.placement == ranked[1]
    assert line.second.more_ms == pytest.approx(times[ranked[1]] - times[ranked[0]])


def test_it_says_what_was_measured_and_how_sure_the_rest_is() -> None:
    network = Network(1, 24, 24, 16)
    network.opaque(network.conv(0, 16))
    found, prices, plan = explained(network.graph(), FREE)
    assert [o.placement.on for o in plan.operators] == ["split", "cpu"]
    split, whole = found.operators
    parts = prices.choices[0][prices.index(0, split.placement)]
    assert (split.measured, split.deviation) == (False, 0.07 if parts.cpu_ms > parts.gpu_ms else 0.2)
    assert (whole.measured, whole.deviation) == (True, 0.01)
    rows = {line.split()[0]: line for line in explanation_text(found).splitlines() if line}
    assert f"±{split.deviation:.0%}" in rows["0"] and "measured" in rows["1"]


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_it_says_which_kernel_the_gpu_runs() -> None:
    network = Network(1, 24, 24, 16)
    network.opaque(network.conv(0, 16))
    found, _, plan = explained(network.graph(), FREE)
    split, on_cpu = found.operators
    place = plan.operators[0].placement
    assert split.placement.on == "split" and on_cpu.placement.on == "cpu"
    lo, hi = place.parts(24)[1] if place.axis == "height" else place.parts(16)[1]
    assert split.variant == f"direct, conv2d of {hi - lo}" and on_cpu.variant == ""
    text = one_line(explanation_text(found))
    assert text.count("GPU kernel: direct, conv2d") == 1


def test_a_hundred_operators_fit_into_the_width_and_into_json() -> None:
    found, _, plan = explained(long_network(), SHARED)
    text = explanation_text(found)
    assert max(map(len, text.splitlines())) <= WIDTH
    numbers = [line.split()[0] for line in text.splitlines() if line and not line.startswith(" " * 5)]
    assert [str(line.operator) for line in plan.operators] == [number for number in numbers if number.isdigit()]
    words = one_line(text)
    assert words.count("opaque") >= 10 and "in a chain with" in words and "otherwise" in words
    assert words.count("; second choice ") == 100 and "transfers with the network's ends" in words
    assert "that gains" not in words and not any(" -0." in line for line in text.splitlines())
    assert msgspec.json.decode(msgspec.json.encode(found), type=Explanation) == found
    assert explanation_text(found) == explanation_text(explained(long_network(), SHARED)[0])


def test_names_cuts_and_times_of_any_usual_length_fit() -> None:
    found, _, _ = explained(long_network(3), SHARED)
    place = Placement("split", "channels", 2048, (16, 16))
    changes = {"operator": 1234, "placement": place, "cpu_ms": 1234.5, "gpu_ms": 2345.6, "here_ms": 1234.5}
    other = Other(place, -1234.5678)
    wide = replace(
        found,
        measured_ms=12345.678,
        searched_ms=12345.678,
        bound_ms=12345.678,
        stated_mj=12345.678,
        operators=tuple(
            replace(o, **changes, name=f"{o.name}_{'x' * 99}_4567", second=other, reason="y" * 99)
            for o in found.operators
        ),
    )
    text = explanation_text(wide)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "4567  channels@2048+16-16  1234.5  2345.6  1234.5" in text


def test_second_choices_that_gain_come_with_the_reason_why_they_were_not_taken() -> None:
    graph = long_network(3)
    _, _, plan = explained(graph, FREE)
    found, _, _ = explained(graph, FREE, replace(plan, measured_ms=0.0))
    (first, *rest), place = found.operators, Placement("gpu")
    none, little, much = (replace(first, second=Other(place, ms)) for ms in (-0.0004, -0.0006, -0.25))

    def last(*operators: object, **says: float) -> str:
        return one_line(explanation_text(replace(found, operators=operators, **says)))

    assert "gains" not in last(none, *rest) and "gpu +0.000 ms" in last(none, *rest)
    assert "1 operator has a second choice that gains" in last(little, *rest)
    older = last(much, little, *rest)
    assert "2 operators have a second choice that gains by these costs, 0.250 ms at most" in older
    assert "older costs" in older and older.endswith("tvm-codl plan MODEL --again plans anew")
    assert "runs on the phone" in last(much, *rest, measured_ms=1.0)
    energy = last(much, *rest, stated_mj=1.0)
    assert "its energy" in energy and "--again" not in energy


def test_a_plan_by_hand_may_have_better_second_choices() -> None:
    graph = long_network(4)
    found, _, _ = explained(graph, FREE, uniform_plan(graph, "gpu", "net", "phone"))
    assert all(o.second is not None and o.second.more_ms < 0 for o in found.operators if o.name.startswith("0"))


def test_the_correction_of_a_device_and_what_was_measured_are_told() -> None:
    graph = long_network(3)
    _, _, plan = explained(graph, FREE)
    corrected = replace(plan, correction=1.5, measured_ms=7.5, searched_ms=2.0, bound_ms=1.9, predicted_mj=3.25)
    found, _, _ = explained(graph, FREE, corrected)
    before, _, _ = explained(graph, FREE, plan)
    assert found.predicted_ms is not None and before.predicted_ms is not None
    assert found.predicted_ms == pytest.approx(1.5 * before.predicted_ms)
    first, other = found.operators[0].second, before.operators[0].second
    assert first is not None and other is not None and first.more_ms == pytest.approx(1.5 * other.more_ms)
    text = one_line(explanation_text(found))
    assert "measured: 7.500 ms" in text and "no plan of its candidates below 1.900 (within 5.3% of the best)" in text
    assert "3.250 mJ" in text and "a model, not a measurement" in text


def test_without_costs_a_plan_says_what_it_states() -> None:
    graph = long_network(5)
    _, _, plan = explained(graph, TransferCost(0.002, 0.002))
    found = restate(plan)
    text = one_line(explanation_text(found))
    assert found.predicted_ms is None and found.stated_ms == plan.predicted_ms
    assert all(o.second is None and o.deviation is None for o in found.operators)
    assert all(o.reason in text for o in found.operators)
    assert explanation_text(restate(uniform_plan(graph, "cpu"))).count("cpu only") == 5
