"""Races on a phone of numbers: which turns count, and when there are too few."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.measure import interleave
from tvm_codl.measure.interleave import PATIENCE_S, RUNS, STEADY, TRIES, WARM_MS, Race, UsualWork, library_turn
from tvm_codl.runtime.comodule import Watched


class Phone:
    """Programs of known times on a clock of its own; ``taken(now)`` says whether another process has a core then."""

    def __init__(self, ms: dict[str, float], taken: Callable[[float], bool] = lambda now: False) -> None:
        self.ms, self.taken, self.now = ms, taken, 0.0
        self.speed = 1.0

    def race(self, patience_s: float = PATIENCE_S, usual: UsualWork | None = None) -> Race:
        turns = {name: lambda name=name: self.turn(name) for name in self.ms}
        return Race(turns, patience_s=patience_s, clock=lambda: self.now, sleep=self.sleep, usual=usual)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def turn(self, name: str) -> Watched:
        ms, waited = [], []
        for _ in range(1 + RUNS):
            waits = self.ms[name] if self.taken(self.now) else 0.0
            ms.append((self.ms[name] + waits) / self.speed)
            waited.append(waits)
            self.now += ms[-1] / 1e3
        return Watched(tuple(ms), tuple(waited), (0.3 / self.speed, 0.3))


def test_on_a_calm_phone_every_round_counts_once() -> None:
    phone = Phone({"a": 4.0, "b": 6.0})
    race = phone.race()
    assert race.run(5) == {"a": [4.0] * 5 * RUNS, "b": [6.0] * 5 * RUNS}
    assert race.run(2, ["b"]) == {"b": [6.0] * 2 * RUNS}
    assert (race.discarded, race.disturbed, race.words) == (0, False, "")


@given(st.sampled_from([0.1, 1.0, 5.0]), st.sampled_from([0.25, 0.5]), st.floats(0, 1))
def test_what_other_work_slowed_down_does_not_count(spell_s: float, share: float, phase: float) -> None:
    phone = Phone({"a": 4.0, "b": 6.0}, lambda now: (now / spell_s * share + phase) % 1.0 < share)
    race = phone.race()
    times = race.run(30)
    assert {name: set(samples) for name, samples in times.items()} == {"a": {4.0}, "b": {6.0}}
    # Spells that are about as long as a round leave the fewest.
    assert len(times["a"]) == len(times["b"]) >= 15 * RUNS
    assert not race.disturbed
    assert phone.now < 2 * PATIENCE_S


def test_a_phone_that_is_never_calm_ends_in_time_and_says_so() -> None:
    phone = Phone({"a": 4.0, "b": 6.0}, lambda now: now > 1.0)
    race = phone.race()
    assert len(race.run(30)["a"]) == 30 * RUNS and not race.disturbed
    phone.now = 2.0
    times = race.run(60)
    assert set(times["a"]) == {8.0} and len(times["a"]) >= 60 * RUNS, "they are all that there is"
    assert race.disturbed and "only 30 of 90 rounds" in race.words
    assert phone.now < 2.0 + 2 * PATIENCE_S


def test_long_turns_that_are_taken_again_cost_patience_too() -> None:
    phone = Phone({"a": 300.0}, lambda now: now > 1.0)
    phone.race().run(20)
    turn_s = 2 * 0.3 * (1 + RUNS)
    assert 20 * turn_s / 2 < phone.now < 20 * turn_s + PATIENCE_S + TRIES * turn_s


def test_a_clock_that_fell_is_noticed_though_nobody_waits() -> None:
    phone = Phone({"a": 4.0})
    race = phone.race(patience_s=1.0)
    race.run(5)
    phone.speed = 0.7
    race.run(6)
    assert race.disturbed


def test_a_clock_that_fell_before_a_race_is_noticed_by_what_the_races_before_found() -> None:
    phone, usual = Phone({"a": 4.0}), UsualWork()
    for speed, disturbed in ((1.0, False), (0.7, True), (0.95, False), (1.4, False), (1.0, True)):
        phone.speed = speed
        race = phone.race(patience_s=1.0, usual=usual)
        race.run(10)
        assert race.disturbed == disturbed, speed


@given(st.floats(0.0, 0.2), st.booleans())
def test_a_program_whose_times_vary_runs_more_often(spread: float, patient: bool) -> None:
    phone = Phone({"a": 4.0, "b": 6.0})

    def turn() -> Watched:
        phone.ms["a"] = 4.0 if phone.ms["a"] > 4.0 else 4.0 * (1.0 + spread)
        return phone.turn("a")

    race = phone.race(patience_s=PATIENCE_S if patient else 0.0)
    race.turns = {**race.turns, "a": turn}
    more = patient and spread / (1.0 + spread / 2) > STEADY
    assert len(race.run(10, most=30)["b"]) == (30 if more else 10) * RUNS
    assert len(race.run(10)["b"]) == 10 * RUNS and not race.disturbed


def test_a_turn_is_taken_again_a_few_times() -> None:
    waits = iter([0.0, *[9.0] * (TRIES - 1), 0.0, 0.0])
    turns = 0

    def turn() -> Watched:
        nonlocal turns
        turns += 1
        waited = next(waits)
        return Watched((4.0 + waited,) * (1 + RUNS), (waited,) * (1 + RUNS))

    race = Race({"a": turn}, patience_s=PATIENCE_S, sleep=lambda seconds: None)
    assert race.run(3) == {"a": [4.0] * 3 * RUNS}
    assert (turns, race.discarded) == (2 + TRIES, TRIES - 1)


def test_a_short_network_runs_for_a_while_before_its_samples() -> None:
    class Library:
        """Takes 2 ms when it has not run for long, then 0.5 ms."""

        asked: ClassVar[list[int]] = []

        def watch(self, number: int, repeat: int) -> Watched:
            self.asked.append(repeat)
            ms = tuple(2.0 if run < 3 else 0.5 for run in range(repeat))
            return Watched(ms, (0.0,) * repeat, (0.3, 0.3))

    library = Library()
    race = Race({"a": library_turn(library)})  # type: ignore[arg-type]
    race.run(2)
    assert race.run(4) == {"a": [0.5] * 4 * RUNS}
    assert library.asked[-1] >= WARM_MS / 0.5 + RUNS


def test_a_core_that_was_once_faster_does_not_make_all_else_disturbed() -> None:
    turns = 0

    def turn() -> Watched:
        nonlocal turns
        turns += 1
        alone = turns % 5 == 1  # the other core's known work started late, and the two share their units
        return Watched((4.0,) * (1 + RUNS), (0.0,) * (1 + RUNS), (0.28 if alone else 0.47, 0.47))

    race = Race({"a": turn}, sleep=lambda seconds: None)
    assert len(race.run(20)["a"]) == 20 * RUNS and not race.disturbed and race.discarded < 3


def test_what_needs_no_calm_is_done_while_the_machine_calms_down(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 10.0, list[float]()
    monkeypatch.setattr(interleave, "time", SimpleNamespace(monotonic=lambda: now, sleep=slept.append))
    monkeypatch.setattr(interleave, "CALM_S", 2.0)

    def check() -> None:
        nonlocal now
        now += 1.5

    interleave.calm_down()
    interleave.calm_down(check)
    interleave.calm_down(lambda: [check(), check()])
    assert slept == [2.0, 0.5, 0.0]
