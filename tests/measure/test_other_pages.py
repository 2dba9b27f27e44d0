"""The page that compares two plans, and pages of tables, opened in a browser where there is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.measure.conftest import Opened, OpenPage, assert_no_barrier
from tests.measure.test_network_page import measured
from tests.measure.test_network_page import problem as problem
from tests.unit.plan.explain.test_explanation import Learned
from tests.unit.report.test_evaluation import scatter
from tests.unit.report.test_ranking import ranking
from tvm_codl.cost.evaluation.metrics import Result, metrics
from tvm_codl.measure.network_page import network_page
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.plan.problem import Problem
from tvm_codl.report import evaluation
from tvm_codl.report.comparison import compare, differences, read_data
from tvm_codl.report.page import render
from tvm_codl.report.ranking import ranking_page
from tvm_codl.report.tables_page import TablesPage, render_tables


@pytest.fixture(scope="module")
def comparison(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> TablesPage:
    """Of the plan that is searched for, measured, and of the CPU alone, predicted."""
    folder, found = tmp_path_factory.mktemp("pages"), problem.search()
    alone = uniform_plan(problem.graph, "cpu", "net", "phone")
    pages = (
        network_page("net.onnx", found, "", problem, Learned(), measured()),
        network_page("net.onnx", alone, "cpu-only", problem, Learned()),
    )
    paths: list[Path] = []
    for page in pages:
        paths.append(folder / f"{len(paths)}.html")
        paths[-1].write_text(render(page), encoding="utf-8")
    a, b = map(read_data, paths)
    moved = {(p.operator, p.name) for p, q in zip(found.operators, alone.operators, strict=True) if p != q}
    assert moved and {(each.number, each.name) for each in differences(a, b)} >= moved
    assert (a.predicted_ms, b.predicted_ms) == tuple(page.predicted_ms for page in pages)
    return compare(a, b, ("plan.html", "cpu-only.html"))


@pytest.fixture(scope="module", params=["comparison", "ranking", "evaluation"])
def opened(request: pytest.FixtureRequest, comparison: TablesPage, open_page: OpenPage) -> Opened:
    found = scatter()
    result = Result(found.device, "conv", "learned", metrics(np.ones(3), np.array([1.0, 1.05, 1.5])))
    pages = {
        "comparison": comparison,
        "ranking": ranking_page(ranking()),
        "evaluation": evaluation.page([result], [found], "held out"),
    }
    return open_page(render_tables(pages[request.param]))


def test_it_opens_without_a_request_or_an_error(opened: Opened) -> None:
    tab, said = opened
    assert [text for text in said if not text.startswith("data:")] == [tab.url]
    assert tab.locator("main table").count() > 0
    assert tab.evaluate("[...document.images].every((each) => each.naturalWidth > 0)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_on_it_keeps_people_out(scheme: str, opened: Opened) -> None:
    assert_no_barrier(opened[0], scheme)
