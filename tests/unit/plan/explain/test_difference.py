from __future__ import annotations

import dataclasses

import msgspec
import pytest
from msgspec.structs import replace

from tests.unit.plan.explain.test_what_if import planned, problem
from tests.unit.plan.networks import convolutions
from tvm_codl.plan.explain.difference import Difference, compare, difference_text
from tvm_codl.plan.explain.prices import Prices
from tvm_codl.plan.explain.text import WIDTH
from tvm_codl.plan.plan import Placement, uniform_plan


def test_a_plan_does_not_differ_from_itself() -> None:
    plan = planned(problem(convolutions(3)))
    found = compare(plan, plan)
    assert (found.lines, found.same) == ((), 3)
    assert difference_text(found, ("a.json", "b.json")).startswith("0 operators differ, 3 are the same")


def test_what_differs_comes_with_the_times_that_the_plans_state() -> None:
    plan = planned(problem(convolutions(3)))
    edited = replace(plan.operators[1], placement=Placement("gpu"), planned_ms=9.0, share_ms=0.5)
    other = replace(plan, operators=(plan.operators[0], edited, plan.operators[2]), measured_ms=12.0)
    found = compare(plan, other)
    (line,) = found.lines
    assert (line.operator, line.a, line.b) == (1, plan.operators[1].placement, Placement("gpu"))
    assert line.a_ms == pytest.approx(plan.operators[1].planned_ms + plan.operators[1].share_ms)
    assert line.b_ms == 9.5 and found.same == 2
    text = difference_text(found, ("a.json", "b.json"))
    assert "conv2d_1" in text and "9.500" in text and "b: b.json: 3 operators" in text and "measured 12.000 ms" in text
    assert msgspec.json.decode(msgspec.json.encode(found), type=Difference) == found


def test_operators_of_one_plan_alone_are_absent_in_the_other() -> None:
    long, short = uniform_plan(convolutions(3), "cpu"), uniform_plan(convolutions(2), "cpu")
    for a, b in ((long, short), (short, long)):
        (line,) = compare(a, b).lines
        assert {line.a is None, line.b is None} == {True, False}
        assert (line.a_ms, line.b_ms) == (None, None), "a plan by hand states no times"
        assert "absent" in difference_text(compare(a, b), ("a", "b"))
    renamed = replace(short, operators=tuple(replace(o, name=o.name + "'") for o in short.operators))
    assert len(compare(short, renamed).lines) == 4


def test_with_costs_both_are_predicted_by_the_same() -> None:
    of = problem(convolutions(3, size=40))
    plan, gpu = planned(of), uniform_plan(of.graph, "gpu")
    found = compare(plan, gpu, Prices.of(of, [plan, gpu]))
    assert found.a.priced_ms == pytest.approx(plan.predicted_ms, abs=1e-6)
    longer = compare(plan, gpu, Prices.of(dataclasses.replace(of, correction=1.5), [plan, gpu]))
    assert longer.a.priced_ms == pytest.approx(1.5 * plan.predicted_ms, abs=1e-6)
    assert longer.b.priced_ms == found.b.priced_ms, "of the GPU alone its runs say more"
    assert found.b.priced_ms is not None and found.b.priced_ms > plan.predicted_ms
    assert len(found.lines) == 3 and all(line.a_ms and line.b_ms and line.b_ms > line.a_ms for line in found.lines)
    assert "predicted" in difference_text(found, ("a", "gpu-only"))


def test_lines_fit_with_long_names_cuts_and_times() -> None:
    plan = uniform_plan(convolutions(3), "cpu")
    name = "a_name_that_is_far_too_long_for_any_table_of_operators_12"
    here, there = (Placement("split", "channels", at, (16, 16)) for at in (1024, 2048))
    a, b = (
        replace(
            plan,
            predicted_ms=12345.678,
            measured_ms=12345.678,
            predicted_mj=12345.678,
            operators=tuple(
                replace(o, operator=1000 + o.operator, name=name, placement=place, planned_ms=ms)
                for o in plan.operators
            ),
        )
        for place, ms in ((here, 1234.5), (there, 2345.6))
    )
    text = difference_text(compare(a, b), ("a/very/long/path/" * 9 + "a.json", "b.json"))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "12  channels@1024+16-16  channels@2048+16-16  1234.5  2345.6  +1111.1" in text
