"""The drift alarm, against a phone that is none, whose speed the test sets."""

from __future__ import annotations

import pytest

from tests.measure.null_phone import network
from tvm_codl.measure.baseline import WANTED_FLOPS, Baseline, Verdict, baseline_probes
from tvm_codl.measure.settings import Settings


class NullClock:
    """A phone that runs at ``speed``, and at ``rested`` after so many seconds of rest."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.speed, self.rest_needed, self.slept, self.words = 1.0, float("inf"), 0.0, []  # type: ignore[var-annotated]
        self.baseline = Baseline(self.times, settings or Settings(), self.words.append, self.sleep)

    def times(self) -> dict[str, float]:  # type: ignore[override]
        return {"cpu": 2.0 / self.speed, "gpu": 4.0 / self.speed}

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        if self.slept >= self.rest_needed:
            self.speed = 1.0


def test_a_steady_phone_raises_no_alarm() -> None:
    clock = NullClock()
    for speed in (1.0, 1.1, 0.85, 1.0):
        clock.speed = speed
        assert clock.baseline.check() is Verdict.STEADY
    assert clock.slept == 0
    assert clock.words == []


def test_a_phone_that_needs_a_rest_gets_it_in_growing_pauses() -> None:
    clock = NullClock()
    clock.baseline.check()
    clock.speed, clock.rest_needed = 0.5, 7.0
    assert clock.baseline.check() is Verdict.RECOVERED
    assert clock.slept == 0.5 + 1 + 2 + 4
    assert "runs at 0.50 of its speed" in clock.words[0]
    assert clock.baseline.check() is Verdict.STEADY


def test_a_phone_that_stays_slow_is_used_as_it_is_and_rests_no_longer_than_the_session_allows() -> None:
    clock = NullClock(Settings(cool_s=10.0))
    clock.baseline.check()
    clock.speed = 0.6
    for _ in range(5):
        assert clock.baseline.check() is Verdict.SLOW
    assert clock.slept <= 10.0
    clock.speed = 1.0
    assert clock.baseline.check() is Verdict.RECOVERED
    assert clock.baseline.check() is Verdict.STEADY


def test_a_phone_that_was_slow_from_the_beginning() -> None:
    clock = NullClock()
    clock.speed = 0.5
    clock.baseline.check()
    assert clock.baseline.check() is Verdict.STEADY
    clock.speed = 1.0
    assert clock.baseline.check() is Verdict.FASTER
    assert clock.baseline.check() is Verdict.STEADY
    clock.speed = 0.5
    clock.rest_needed = 1.0
    assert clock.baseline.check() is Verdict.RECOVERED


def test_one_processor_alone_that_slows_down_is_noticed() -> None:
    clock = NullClock(Settings(cool_s=0.0))
    clock.baseline.check()
    clock.times = lambda: {"cpu": 2.0, "gpu": 8.0}  # type: ignore[method-assign]
    clock.baseline.times = clock.times
    assert clock.baseline.check() is Verdict.SLOW


@pytest.mark.parametrize("count", [1, 6])
def test_each_processor_has_one_known_operator(count: int) -> None:
    graph = network(count)
    probes = baseline_probes(graph)
    assert [p.processor for p in probes] == ["cpu", "gpu"]
    assert all(p.axis == "" for p in probes)
    nearest = max(graph.operators, key=lambda o: o.flops)  # all are smaller than what is wanted
    assert nearest.flops < WANTED_FLOPS
    assert {p.operator for p in probes} == {nearest.id}
