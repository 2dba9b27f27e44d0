"""The drift alarm, against a phone that is none, whose speed the test sets."""

from __future__ import annotations

import pytest

from tests.measure.null_phone import network
from tvm_codl.measure.baseline import LOOK_S, LOOKS, WANTED_FLOPS, Baseline, Verdict, baseline_probes
from tvm_codl.measure.settings import Settings


class NullClock:
    """A phone that runs at ``speed``, and at full speed after ``rest_needed`` seconds of rest, or ``looks_needed`` looks."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.speed, self.rest_needed, self.slept, self.words = 1.0, float("inf"), 0.0, []  # type: ignore[var-annotated]
        self.looks_needed = float("inf")
        self.baseline = Baseline(self.times, settings or Settings(), self.words.append, self.sleep)

    def times(self) -> dict[str, float]:  # type: ignore[override]
        return {"cpu": 2.0 / self.speed, "gpu": 4.0 / self.speed}

    def sleep(self, seconds: float) -> None:
        if seconds == LOOK_S:  # between two looks
            self.looks_needed -= 1
        else:
            self.slept += seconds
        if self.slept >= self.rest_needed or self.looks_needed <= 0:
            self.speed = 1.0


def test_a_steady_phone_raises_no_alarm() -> None:
    clock = NullClock()
    for speed in (1.0, 1.1, 0.85, 1.0):
        clock.speed = speed
        assert clock.baseline.check() is Verdict.STEADY
    clock.baseline.tell_changes()
    assert clock.slept == 0
    assert clock.words == []


def test_a_look_that_other_work_disturbed_is_not_the_phones_speed() -> None:
    clock = NullClock()
    clock.speed, clock.looks_needed = 0.5, LOOKS - 1
    clock.baseline.check()
    assert clock.baseline.reference == {"cpu": 2.0, "gpu": 4.0}, "the first speed is the best of a few looks"
    clock.speed, clock.looks_needed = 0.5, LOOKS - 1
    assert clock.baseline.check() is Verdict.STEADY
    assert clock.slept == 0 and clock.words == []


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


def test_a_phone_whose_speed_changes_all_the_time_is_told_in_a_few_lines() -> None:
    """One line for each kind of change, and one at the end, whatever comes in between."""
    clock = NullClock(Settings(cool_s=2.0))
    clock.baseline.check()
    for speed in (0.75, 0.51, 1.0, 0.7) * 5:
        clock.speed = speed
        clock.baseline.check()
    slow, still, again = clock.words
    assert "runs at 0.75 of its speed; cooling down" in slow
    assert "still runs at 0.75 of its speed; measuring goes on" in still
    assert "first speed again" in again
    clock.baseline.tell_changes()
    told = clock.words[3]
    assert "fell below 0.80 of its speed 6 times, to 0.51 at the slowest" in told
    assert "cooled down for 2 s in all" in told and told.endswith("is still slow")
    assert len(clock.words) == 4


def test_a_phone_that_may_not_rest_is_not_said_to_cool_down() -> None:
    clock = NullClock(Settings(cool_s=0.0))
    for speed in (1.0, 0.5, 0.4, 1.0):
        clock.speed = speed
        clock.baseline.check()
    slow, again = clock.words
    assert slow.endswith("runs at 0.50 of its speed; measuring goes on") and "first speed again" in again
    clock.baseline.tell_changes()
    assert clock.words[2].endswith("once, to 0.40 at the slowest")


def test_a_phone_that_gets_faster_and_faster_is_told_once() -> None:
    clock = NullClock()
    for speed in (1.0, 2.0, 4.0, 8.0):
        clock.speed = speed
        clock.baseline.check()
    assert len(clock.words) == 1
    clock.baseline.tell_changes()
    assert len(clock.words) == 2 and "ran faster than at first 3 times" in clock.words[1]


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
