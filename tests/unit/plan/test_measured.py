from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from tests.unit.plan.baselines.test_baselines import problem
from tests.unit.plan.networks import convolutions
from tests.unit.plan.test_shortlist import SHARING, Partial, narrow_wide
from tvm_codl.plan.baselines.greedy import greedy_chains
from tvm_codl.plan.baselines.planners import one_ratio
from tvm_codl.plan.calibration import PRIOR_SAMPLES
from tvm_codl.plan.measured import fit_correction, graph_digest, plans_of, record_of
from tvm_codl.plan.plan import Placement
from tvm_codl.plan.problem import Problem
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.settings import Settings


def given(count: int, factor: float = 1.0) -> Problem:
    return replace_factor(problem(convolutions(count), sharing=SHARING), factor)


def replace_factor(one: Problem, factor: float) -> Problem:
    return Problem(one.graph, one.axes, one.costs, one.sharing, one.name, one.device, factor)


def run(one: Problem, ratio: float, when: float = 1.0) -> PlanRecord:
    plan = greedy_chains(one)
    return record_of(one, plan, [plan.predicted_ms / plan.correction * ratio], "b", when)


def test_a_plan_comes_back_from_its_record() -> None:
    one = given(4)
    for plan in (greedy_chains(one), one_ratio(one)):
        (back,) = plans_of([record_of(one, plan, [3.0, 2.0, 9.0], "b", 1.0)], one)
        assert back.placements == plan.placements
        assert back.predicted_ms == pytest.approx(plan.predicted_ms)
        assert back.settings == plan.settings
    settings = Settings(flush_every=4)
    (back,) = plans_of([record_of(one, replace(plan, settings=settings), [3.0], "b", 1.0)], one)
    assert back.settings == settings


def test_known_plans_are_this_networks_legal_and_the_fastest_as_last_run_first() -> None:
    one = given(4)
    greedy = greedy_chains(one)
    rows = one.place([Placement("split", "height", 8)] * 4, "by hand")
    records = [
        record_of(one, greedy, [1.0], "b", 1.0),
        record_of(one, rows, [2.0], "b", 2.0),
        record_of(one, greedy, [3.0], "b", 3.0),
        record_of(one, one.single_processor_plans()["cpu"], [0.1], "b", 4.0),
        record_of(given(5), greedy_chains(given(5)), [0.1], "b", 5.0),
    ]
    records.append(replace(records[1], placements=records[1].placements.replace('"at":', '"at":9'), times_ms=(0.1,)))
    records.append(replace(records[1], placements=records[1].placements.replace("height", "depth"), times_ms=(0.1,)))
    records.append(replace(records[1], placements='[{"on":"split"}]', times_ms=(0.1,)))
    records.append(replace(records[1], placements=records[1].placements.replace('"split"', '"npu"'), times_ms=(0.1,)))
    records.append(replace(records[0], settings='{"gpu_float":"float16"}', times_ms=(0.1,)))
    assert [plan.placements for plan in plans_of(records, one)] == [rows.placements, greedy.placements]


def test_a_known_plan_of_which_a_part_does_not_run_any_more_is_left_out() -> None:
    before = problem(narrow_wide(), sharing=SHARING)
    now = problem(narrow_wide(), Partial(gpu=48), SHARING)
    halves, whole = Placement("split", "height", 12), Placement("cpu")
    runs = [
        record_of(before, before.place(wanted, "by hand"), [ms], "b", ms)
        for ms, wanted in ((1.0, [halves] * 3), (2.0, [halves, whole, halves]))
    ]
    assert [plan.placements for plan in plans_of(runs, before)] == [(halves,) * 3, (halves, whole, halves)]
    assert [plan.placements for plan in plans_of(runs, now)] == [(halves, whole, halves)]


def test_the_correction_grows_with_the_networks_that_agree() -> None:
    graph = given(1).graph
    assert fit_correction([], graph) == 1
    others = [run(given(count), 1.2) for count in range(2, 12)]
    factors = [fit_correction(others[:n], graph) for n in range(1, 11)]
    assert factors == sorted(factors)
    for n, factor in enumerate(factors, 1):
        assert factor == pytest.approx(math.exp(math.log(1.2) * n / (n + PRIOR_SAMPLES)), abs=1e-4)


def test_the_correction_knows_neither_the_network_itself_nor_single_processors_nor_what_is_outdated() -> None:
    one, other = given(3), given(4)
    assert fit_correction([run(one, 3.0)], one.graph) == 1
    alone = other.single_processor_plans()["cpu"]
    assert fit_correction([record_of(other, alone, [alone.predicted_ms * 3], "b", 1.0)], one.graph) == 1
    again = fit_correction([run(other, 3.0), run(other, 1.5, 2.0)], one.graph)
    assert again == pytest.approx(fit_correction([run(other, 1.5)], one.graph))


def test_one_network_of_many_plans_has_one_voice() -> None:
    many = given(4)
    records = [
        record_of(many, plan, [plan.predicted_ms * 2], "b", 1.0) for plan in (greedy_chains(many), one_ratio(many))
    ]
    records += [run(given(count), 1.1) for count in (5, 6)]
    assert fit_correction(records, given(2).graph) == pytest.approx(
        math.exp(math.log(1.1) * 3 / (3 + PRIOR_SAMPLES)), abs=1e-4
    )


def test_a_correction_scales_what_is_shared_and_is_stated_and_taken_out_of_records() -> None:
    plain, scaled = given(4), given(4, 1.25)
    a, b = greedy_chains(plain), greedy_chains(scaled)
    assert b.predicted_ms == pytest.approx(1.25 * a.predicted_ms)
    assert (a.correction, b.correction) == (1.0, 1.25)
    assert record_of(scaled, b, [1.0], "b", 1.0).predicted_ms == pytest.approx(a.predicted_ms)
    assert scaled.single_processor_plans()["gpu"] == plain.single_processor_plans()["gpu"]


def test_networks_have_digests_of_their_own() -> None:
    digests = {graph_digest(given(count).graph) for count in (2, 3, 4)}
    assert len(digests) == 3
    assert all(len(digest) == 16 for digest in digests)
    assert graph_digest(given(2).graph) == graph_digest(given(2).graph)
