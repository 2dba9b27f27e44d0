"""The page of a plan, by costs that are made up; opened in a browser where there is one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from tests.measure.conftest import Opened, OpenPage, assert_no_barrier
from tests.unit.plan.explain.test_explanation import SHARED, Learned, long_network
from tests.unit.plan.test_search import legal
from tvm_codl.errors import UserError
from tvm_codl.measure.bench import BenchReport
from tvm_codl.measure.network_page import Checked, network_page
from tvm_codl.plan.explain.what_if import parse_asked, what_if
from tvm_codl.plan.measured import record_of
from tvm_codl.plan.plan import Placement, uniform_plan
from tvm_codl.plan.problem import Problem
from tvm_codl.records.rounds import Round
from tvm_codl.report.page import Page, render
from tvm_codl.report.statistics import Statistics


@pytest.fixture(scope="module")
def problem() -> Problem:
    graph = long_network(40)
    return Problem(graph, legal(graph), Learned(), SHARED, "net", "phone", correction=1.1)


@pytest.fixture(scope="module")
def page(problem: Problem) -> Page:
    return network_page("net.onnx", problem.search(), "a plan.json", problem, Learned())


def measured(**changed: Any) -> BenchReport:
    def times(ms: float) -> Statistics:
        return Statistics.of([0.9 * ms, ms, 1.2 * ms])

    event = {"name": "f", "processor": "cpu", "kind": "kernel", "start_us": 0.0, "end_us": 2e3}
    report = BenchReport(
        "net", "phone", times(4.0), None, times(2.0), "cpu", 4.0, 2.0, 1.9, 0.95, 2.1, 0.5, 1e-6, 2e-6, 0, "svm", "p.json",
        {"onnxruntime": times(3.0)}, disturbed=True, timeline=(event,),
    )  # fmt: skip
    return replace(report, **changed)


def test_another_placement_costs_what_the_command_says(problem: Problem, page: Page) -> None:
    plan = problem.search()
    for row in page.operators[::7]:
        assert row.choices or row.kind == "opaque"
        for choice in row.choices[:3]:
            asked = parse_asked([f"{row.number}={choice.placement}"], problem.graph, problem.axes)
            assert choice.total_ms == pytest.approx(what_if(problem, asked, plan).alone.ms, rel=1e-12)


def test_the_run_is_the_simulated_one(problem: Problem, page: Page) -> None:
    assert page.predicted_ms == pytest.approx(page.span_ms * 1.1)
    assert all(0 <= bar.start_ms < bar.end_ms <= page.span_ms + 1e-9 for bar in page.bars)
    for on in ("cpu", "gpu"):
        lane = sorted((bar.start_ms, bar.end_ms) for bar in page.bars if bar.on == on)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in itertools.pairwise(lane))
    parts = {(bar.on, bar.row) for bar in page.bars}
    for index, row in enumerate(page.operators):
        assert {on for on in ("cpu", "gpu") if (on, index) in parts} <= (
            {"cpu", "gpu"} if row.on == "split" else {row.on}
        )


def test_it_says_how_the_plan_was_found(problem: Problem) -> None:
    plan = problem.search()
    cpu = uniform_plan(problem.graph, "cpu", "net")
    other = replace(record_of(problem, cpu, [0.1], "build", 1.0), graph="another")
    runs = [record_of(problem, cpu, [5.0, 7.0], "build", 1.0), record_of(problem, plan, [4.0], "build", 1.0), other]
    page = network_page(
        "net.onnx", plan, "p.json", problem, Learned(), runs=runs, rounds=[Round(0, 3.0, 0.0, 0, 9, 0.5)]
    )
    assert [(run.ms, run.this) for run in page.runs] == [(4.0, True), (6.0, False)]
    assert page.runs[1].words == "the CPU alone" and page.runs[0].words.endswith("split")
    assert [(each.measured, each.predicted_ms) for each in page.rounds] == [(9, 3.0)]
    assert "How the plan was found" in render(page)


def test_it_has_the_errors_of_a_check_of_this_plan(problem: Problem) -> None:
    plan = problem.search()
    checked = [Checked(line.operator, line.placement, 2e-7, None) for line in plan.operators[:2]]
    page = network_page("net.onnx", plan, "p.json", problem, Learned(), checked=checked)
    assert [row.errors for row in page.operators[:3]] == [(2e-7, None), (2e-7, None), None]
    assert "2.0e-07 relative, another shape of its own" in render(page)
    other = next(on for on in ("cpu", "gpu") if on != plan.placements[0].on)
    with pytest.raises(UserError):
        network_page(
            "net.onnx", plan, "p.json", problem, Learned(), checked=[replace(checked[0], placement=Placement(other))]
        )


def test_operators_say_what_they_take_and_lose(page: Page) -> None:
    assert [row.sources for row in page.operators] == [(), *((i,) for i in range(len(page.operators) - 1))]
    for row in page.operators:
        assert row.lost_ms == pytest.approx(row.here_ms + row.transfer_ms - row.ideal_ms)
        assert (row.on == "split") == (0 < row.cpu_share < 1)


def test_the_verdict_says_whether_it_was_measured(problem: Problem, page: Page) -> None:
    assert page.verdict.startswith("Predicted: ") and "Not measured" in page.verdict
    found = network_page("net.onnx", problem.search(), "p.json", problem, Learned(), measured())
    assert found.verdict == (
        "Disturbed, other work had the cores: 2.00 ms by this plan (p10 to p90: 1.84 to 2.32), 2.00 times as fast as the CPU "
        "alone; answers are off by 2.0e-06 at most."
    )
    assert [total.name for total in found.totals] == ["this plan", "CPU only", "onnxruntime"]
    assert "A run on the phone" in render(found)


def test_a_plan_of_one_processor_has_a_page(problem: Problem) -> None:
    plan = uniform_plan(problem.graph, "cpu", "net", "phone")
    found = network_page("net.onnx", plan, "cpu-only", problem, Learned())
    assert found.what_if == "tvm-codl plan net.onnx --plan cpu-only"
    assert found.idle_ms["gpu"] == found.span_ms
    render(found)


@pytest.fixture(scope="module")
def opened(page: Page, open_page: OpenPage) -> Opened:
    return open_page(render(page))


def test_the_page_opens_without_a_request_or_an_error(opened: Opened) -> None:
    tab, said = opened
    assert [text for text in said if not text.startswith("data:")] == [tab.url]


def test_a_click_opens_an_operators_panel_and_marks_its_bars(page: Page, opened: Opened) -> None:
    tab, _ = opened
    row = next(index for index, each in enumerate(page.operators) if each.on == "split")
    tab.locator(f"#o{row}").click()
    assert tab.locator("#panel article:visible h3").inner_text().endswith(page.operators[row].name)
    assert tab.locator("#timeline rect.chosen").count() == 2
    assert tab.locator("#list [aria-selected=true]").count() == 1
    tab.locator("#list").press("ArrowDown")
    assert tab.locator("#panel article:visible h3").inner_text().endswith(page.operators[row + 1].name)
    tab.locator("#timeline rect").first.dispatch_event("click")
    assert tab.locator("#panel article:visible h3").inner_text().endswith(page.operators[page.bars[0].row].name)


def test_a_run_on_the_phone_is_linked_both_ways(problem: Problem, open_page: OpenPage) -> None:
    events = [
        {
            "name": f"tvmgen_codl_{row}_fused_" + "_".join(node.op.replace(".", "_") for node in operator.body),
            "processor": "cpu", "kind": "kernel", "start_us": row * 10.0, "end_us": row * 10.0 + 9, "region": "codl_cpu_0",
        }
        for row, operator in enumerate(problem.graph.operators)
    ]  # fmt: skip
    plan, bench = uniform_plan(problem.graph, "cpu", "net"), measured(timeline=tuple(events))
    tab, _ = open_page(render(network_page("net.onnx", plan, "", problem, Learned(), bench)))
    bars = tab.locator("svg.timeline:not(#timeline) rect")
    assert bars.count() == len(events)
    bars.nth(3).dispatch_event("click")
    assert tab.locator("#panel article:visible h3").inner_text().startswith(f"{problem.graph.operators[3].id} ")
    tab.locator("#o5").click()
    assert bars.nth(5).get_attribute("class") == "cpu chosen"


def test_what_if_on_the_page_is_what_the_command_says(problem: Problem, page: Page, opened: Opened) -> None:
    tab, _ = opened
    row = next(index for index, each in enumerate(page.operators) if each.choices)
    tab.locator(f"#o{row}").click()
    tab.locator("#panel article:visible select").select_option("0")
    words = tab.locator("#panel article:visible .outcome").inner_text()
    change = f"{page.operators[row].number}={page.operators[row].choices[0].placement}"
    alone = what_if(problem, parse_asked([change], problem.graph, problem.axes), problem.search()).alone
    assert words.startswith(f"predicted {alone.ms:.3f} ms")
    assert words.endswith(f"tvm-codl plan net.onnx --plan 'a plan.json' --what-if {change}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_on_the_page_keeps_people_out(scheme: Any, opened: Opened) -> None:
    tab, _ = opened
    tab.locator("#o0").click()
    assert_no_barrier(tab, scheme)
