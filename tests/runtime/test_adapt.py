"""The choice among plans on simulated times: it switches when it pays, returns when the phone is calm, and else stays."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import tvm

from tvm_codl.runtime import plugin

STATES = ("calm", "cpu busy", "cpu busy", "gpu throttled")
#: Work of the CPU and of the GPU in ms of each plan, on a calm phone.
WORK = ((17.0, 17.0), (11.0, 22.0), (7.0, 26.0), (22.0, 11.0))
#: How much slower the CPU and the GPU are at a run.
Slowness = Callable[[int], tuple[float, float]]


class Simulated:
    """A phone on which a run takes as long as its slower processor, and more by noise."""

    def __init__(
        self, slow: Slowness, noise: float = 0.03, outliers: float = 0.02, seed: int = 0, tells_delay: bool = False
    ) -> None:
        self.slow, self.noise, self.outliers, self.tells_delay = slow, noise, outliers, tells_delay
        self.rng = np.random.default_rng(seed)
        self.plan, self.last = 0, -1
        plugin.load()
        self.choice = tvm.get_global_func("codl.create_choice")(*STATES)
        self.plans: list[int] = []
        self.times: list[float] = []

    def run(self, runs: int) -> Simulated:
        for _ in range(runs):
            slow = self.slow(len(self.plans))
            cpu, gpu = (w * s for w, s in zip(WORK[self.plan], slow, strict=True))
            delay = (slow[0] - 1) * WORK[self.plan][0] if self.tells_delay else 0.0
            ms = max(cpu, gpu) * float(self.rng.lognormal(0.0, self.noise))
            if self.rng.random() < self.outliers:
                ms *= float(self.rng.uniform(1.5, 4.0))
            if self.plan != self.last:
                ms *= 1.3  # cold caches
            self.plans.append(self.plan)
            self.times.append(ms)
            self.last = self.plan
            # What is measured as the CPU's own work is all that it did not wait, whatever made the run slow.
            self.plan = int(self.choice["note"](ms, ms * cpu / max(cpu, gpu), delay))
        return self

    @property
    def told(self) -> dict:
        return json.loads(self.choice["adaptation"]())


def between(start: int, end: int, cpu: float, gpu: float = 1.0) -> Slowness:
    return lambda run: (cpu, gpu) if start <= run < end else (1.0, 1.0)


def share_of(plans: list[int], plan: int) -> float:
    return plans.count(plan) / max(1, len(plans))


@pytest.mark.parametrize("seed", range(5))
def test_simulated_noise_moves_nothing(seed: int) -> None:
    phone = Simulated(between(0, 0, 1.0), noise=0.08, outliers=0.04, seed=seed).run(5000)
    assert phone.told["switches"] == []
    # What the trials of a false alarm cost is bounded.
    assert share_of(phone.plans, 0) > 0.93


@pytest.mark.parametrize("seed", range(5))
def test_simulated_violent_noise_costs_little(seed: int) -> None:
    phone = Simulated(between(0, 0, 1.0), noise=0.15, outliers=0.1, seed=seed).run(5000)
    assert share_of(phone.plans, 0) > 0.8
    assert len(phone.told["switches"]) < 20


@pytest.mark.parametrize("seed", range(5))
def test_simulated_busy_cpu_switches_and_returns(seed: int) -> None:
    phone = Simulated(between(200, 600, 2.0), seed=seed).run(1200)
    assert share_of(phone.plans[:200], 0) > 0.95
    assert share_of(phone.plans[230:600], 1) > 0.8, "the plan that is best for a CPU at half its speed"
    assert share_of(phone.plans[800:], 0) > 0.95
    switches = phone.told["switches"]
    assert [(s["from"], s["to"]) for s in switches] == [(0, 1), (1, 0)]
    assert [s["reason"] for s in switches] == ["the CPU is slower", "the first choice is fast again"]
    assert switches[0]["to_ms"] < switches[0]["from_ms"]


@pytest.mark.parametrize("seed", range(5))
def test_simulated_thread_that_queues_up_for_its_core_switches_and_returns_at_once(seed: int) -> None:
    phone = Simulated(between(200, 600, 2.0), noise=0.08, seed=seed, tells_delay=True).run(1200)
    switches = phone.told["switches"]
    assert [(s["from"], s["reason"]) for s in switches][:1] == [(0, "the CPU is slower")]
    tried = 2 * 4
    assert 200 < switches[0]["run"] <= 200 + 16 + 4 + tried, "a trial by chance may have to end first"
    assert share_of(phone.plans[220:600], 0) < 0.1
    back = next(s["run"] for s in switches if s["run"] > 600 and s["to"] == 0)
    assert back <= 600 + 6 + 4 + tried, "as above"
    assert share_of(phone.plans[620:], 0) > 0.9


def test_simulated_thread_that_queues_up_and_loses_nothing_stays() -> None:
    """Other work takes the CPU's core where the GPU is what takes long."""
    phone = Simulated(lambda run: (1.2, 1.3), tells_delay=True).run(600)
    assert phone.told["switches"] == []


@pytest.mark.parametrize("seed", range(5))
def test_simulated_thread_that_queues_up_takes_what_gains_a_little(seed: int) -> None:
    """Why it is slow is known, so that one plan takes 0.92 of the other's time is no noise."""
    phone = Simulated(between(200, 600, 1.4), noise=0.02, seed=seed, tells_delay=True).run(1200)
    assert share_of(phone.plans[260:600], 1) > 0.8
    assert share_of(phone.plans[640:], 0) > 0.9


@pytest.mark.parametrize("seed", range(5))
def test_simulated_throttled_gpu_takes_the_plan_for_it(seed: int) -> None:
    phone = Simulated(between(200, 700, 1.0, 2.0), seed=seed).run(1200)
    assert share_of(phone.plans[230:700], 3) > 0.8
    assert phone.told["switches"][0]["reason"] == "the GPU is slower"
    assert share_of(phone.plans[900:], 0) > 0.95


def test_simulated_very_busy_cpu_takes_the_plan_that_leaves_it_least() -> None:
    phone = Simulated(between(100, 600, 4.0)).run(600)
    assert share_of(phone.plans[140:], 2) > 0.8


def test_simulated_slowness_of_both_keeps_the_plan_and_costs_few_trials() -> None:
    phone = Simulated(between(100, 3000, 2.0, 2.0)).run(3000)
    assert phone.told["switches"] == []
    assert share_of(phone.plans, 0) > 0.8


def test_simulated_bursts_cost_ever_fewer_changes() -> None:
    """A CPU that is busy every other moment must not make the choice run after it for ever."""
    phone = Simulated(lambda run: (2.0, 1.0) if run // 12 % 2 else (1.0, 1.0), noise=0.02, outliers=0.0).run(4000)
    changes = [s["run"] for s in phone.told["switches"]]
    assert sum(run > 2000 for run in changes) <= 2000 / 16
    fixed = Simulated(lambda run: (2.0, 1.0) if run // 12 % 2 else (1.0, 1.0), noise=0.02, outliers=0.0)
    alone = [17.0 * fixed.slow(run)[0] for run in range(4000)]
    assert np.mean(phone.times) < 1.1 * np.mean(alone)


def test_simulated_phone_that_is_busy_from_the_start_is_learned_anew_when_calm() -> None:
    phone = Simulated(between(0, 300, 2.0)).run(900)
    assert phone.told["calm_ms"] < 19.0
    assert share_of(phone.plans[600:], 0) > 0.9


def test_one_plan_never_changes() -> None:
    plugin.load()
    choice = tvm.get_global_func("codl.create_choice")("calm")
    assert {int(choice["note"](ms, ms / 2)) for ms in (1.0, 1.0, 50.0, 50.0, 50.0, 50.0, 50.0) * 20} == {0}


def test_no_plans_and_unknown_states_are_refused() -> None:
    plugin.load()
    create = tvm.get_global_func("codl.create_choice")
    with pytest.raises(Exception, match="no plan to choose"):
        create()
    with pytest.raises(Exception, match="unknown state moon"):
        create("calm", "moon")
