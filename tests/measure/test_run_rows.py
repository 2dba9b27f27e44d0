from __future__ import annotations

import pytest

from tests.unit.plan.explain.test_explanation import long_network
from tvm_codl.measure.run_rows import run_rows
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.report.timeline import Event

GRAPH = long_network(6)
PLAN = uniform_plan(GRAPH, "cpu", "net")


def names(row: int) -> list[str]:
    return [node.op for node in GRAPH.operators[row].body]


#: Operators that have the same name as the first.
ALIKE = [row for row in range(len(GRAPH.operators)) if names(row) == names(0)]


def kernel(row: int, name: str = "") -> Event:
    """By default of a shape of its own."""
    called = "_".join(names(row)).replace(".", "_")
    return Event(f"tvmgen_codl_{name or row}_fused_{called}", "cpu", "kernel", 0.0, 1.0, "codl_cpu_0")


def test_kernels_belong_to_operators_in_order() -> None:
    wait = Event("wait", "cpu", "wait", 0.0, 1.0, "codl_cpu_0")
    rows = [0, 0, 1, 2, 3, 4, 5]  # the first has two kernels
    assert run_rows([wait, *map(kernel, rows)], PLAN, GRAPH) == [None, *rows]


def test_equal_operators_share_a_name() -> None:
    assert len(ALIKE) > 1
    events = [kernel(row, "same") for row in ALIKE]
    assert run_rows(events, PLAN, GRAPH) == ALIKE
    assert run_rows([event for event in events for _ in range(2)], PLAN, GRAPH) == sorted(2 * ALIKE)


@pytest.mark.parametrize("count", [1, len(ALIKE) + 1])
def test_what_cannot_be_told_is_left_out(count: int) -> None:
    assert set(run_rows([kernel(ALIKE[0], "same")] * count, PLAN, GRAPH)) == {None}
