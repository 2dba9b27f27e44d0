from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from tests.unit.plan.test_measured import given
from tvm_codl.plan.baselines.greedy import greedy_chains
from tvm_codl.plan.calibration import PRIOR_SAMPLES, Calibration, calibrate, calibrate_alone, processor_of
from tvm_codl.plan.measured import calibrate_network, fit_correction, record_of
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.settings import Settings


def ran(problem: Problem, plan: Plan, ratio: float) -> PlanRecord:
    """A run of a plan that took ``ratio`` times as long as simulated."""
    return record_of(problem, plan, [plan.predicted_ms / plan.correction * ratio], "b", 1.0)


def alone(problem: Problem, cpu: float, gpu: float) -> list[PlanRecord]:
    return [
        ran(problem, plan, ratio)
        for plan, ratio in zip(problem.single_processor_plans().values(), (cpu, gpu), strict=True)
    ]


def test_the_more_looks_agree_the_more_they_are_believed() -> None:
    one = given(3)
    factors = [calibrate(alone(one, 0.7, 1.5) * looks) for looks in range(1, 8)]
    assert [f.cpu for f in factors] == sorted((f.cpu for f in factors), reverse=True)
    for looks, found in enumerate(factors, 1):
        belief = looks / (looks + PRIOR_SAMPLES)
        assert (found.cpu, found.gpu) == pytest.approx((0.7**belief, 1.5**belief), abs=1e-3)
        assert found.shared == pytest.approx(math.sqrt(found.cpu * found.gpu))
    assert factors[0].cpu == pytest.approx(math.sqrt(0.7), abs=1e-3)


def test_a_time_that_was_disturbed_only_shows_what_was_predicted_too_slow() -> None:
    plans = dataclasses.replace(given(3), calibration=Calibration(1.2, 0.9)).single_processor_plans()
    simulated = {on: plan.predicted_ms / plan.correction for on, plan in plans.items()}
    most = calibrate_alone(plans, {"cpu": simulated["cpu"] * 1.5, "gpu": simulated["gpu"] * 0.8})
    assert (most.cpu, most.gpu) == pytest.approx((1.5, 0.8))
    assert Calibration().at_most(most) == Calibration(1.0, most.gpu)
    assert calibrate_alone(plans, {"gpu": simulated["gpu"] * 0.8}).cpu == 1.0


def test_only_looks_at_this_network_on_one_processor_count() -> None:
    one, other = given(3), given(4)
    assert calibrate([]) == Calibration()
    assert calibrate([ran(one, greedy_chains(one), 3.0)]) == Calibration()
    assert calibrate_network(alone(other, 2.0, 2.0), one.graph) == Calibration()
    half = replace(one.single_processor_plans()["cpu"], settings=Settings(cpu_threads=1))
    assert calibrate_network([ran(one, half, 2.0)], one.graph) == Calibration()
    assert calibrate_network(alone(one, 2.0, 2.0), one.graph) == calibrate(alone(one, 2.0, 2.0))
    assert [processor_of(record) for record in alone(one, 1.0, 1.0)] == ["cpu", "gpu"]
    assert processor_of(ran(one, greedy_chains(one), 1.0)) == ""


factors = st.floats(0.5, 2.0)


@drawn(factors, factors, factors, factors, factors)
@settings(max_examples=examples(20))
def test_a_prediction_is_its_simulated_time_corrected_by_the_latest_factors(
    correction: float, cpu: float, gpu: float, later_cpu: float, later_gpu: float
) -> None:
    plain = given(3)
    known = dataclasses.replace(plain, correction=correction, calibration=Calibration(cpu, gpu))
    later = dataclasses.replace(known, calibration=Calibration(later_cpu, later_gpu))
    plans = {**plain.single_processor_plans(), "shared": greedy_chains(plain)}
    wanted = {"cpu": later_cpu, "gpu": later_gpu, "shared": correction * math.sqrt(later_cpu * later_gpu)}
    for name, plan in plans.items():
        again = later.correct(known.correct(plan))
        assert again.predicted_ms == pytest.approx(plan.predicted_ms * wanted[name], rel=1e-3)
        assert again.predicted_ms == pytest.approx(later.correct(plan).predicted_ms, rel=1e-6)
        # Records hold the simulated time.
        assert record_of(later, again, [1.0], "b", 1.0).predicted_ms == pytest.approx(plan.predicted_ms, rel=1e-4)
        assert replace(again, predicted_ms=0.0, correction=1.0) == replace(plan, predicted_ms=0.0)


def test_what_single_processors_explain_of_other_networks_is_no_correction() -> None:
    """A network that takes half of its operators' time on every processor says nothing of sharing."""
    one, other = given(3), given(4)
    belief = 1 / (1 + PRIOR_SAMPLES)
    shared = ran(other, greedy_chains(other), 0.5**belief)
    assert fit_correction([*alone(other, 0.5, 0.5), shared], one.graph) == pytest.approx(1.0, abs=1e-3)
    assert fit_correction([shared], one.graph) < 0.95
