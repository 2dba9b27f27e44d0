"""How many samples are taken, and how long they may take."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.measure.sampling import first_limit_s, limit_s, relative_error, samples
from tvm_codl.measure.settings import Settings


class Timer:
    """Gives these times in turn; its clock moves by what it gave."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times, self.now, self.asked = itertools.cycle(times), 0.0, []  # type: ignore[var-annotated]

    def run(self, number: int, limit: float) -> list[float]:
        self.asked.append((number, limit))
        given = [next(self.times) for _ in range(number)]
        self.now += sum(given) / 1e3
        return given

    def clock(self) -> float:
        return self.now


def test_a_steady_candidate_takes_the_fewest_after_one_that_is_not_counted() -> None:
    timer = Timer([9.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    assert samples(timer.run, Settings(), clock=timer.clock) == (2.0,) * 5
    assert [number for number, _ in timer.asked] == [1, 5]


def test_an_unsteady_one_takes_more_until_it_is_known_or_the_most_are_taken() -> None:
    unsteady = Timer([1.0, 2.0])
    assert len(samples(unsteady.run, Settings(), clock=unsteady.clock)) == Settings().most


def test_a_slow_one_ends_when_its_time_is_gone() -> None:
    slow = Timer([100.0, 200.0])
    assert len(samples(slow.run, Settings(budget_s=0.5), clock=slow.clock)) == 5


@given(
    st.lists(st.floats(0.01, 1e3), min_size=1, max_size=40),
    st.integers(2, 10),
    st.integers(0, 30),
    st.floats(0.0, 1.0),
)
def test_between_fewest_and_most(times: list[float], fewest: int, more: int, budget: float) -> None:
    settings = Settings(fewest=fewest, most=fewest + more, budget_s=budget)
    timer = Timer(times)
    taken = samples(timer.run, settings, clock=timer.clock)
    assert fewest <= len(taken) <= fewest + more
    if len(taken) < settings.most and timer.now - times[0] / 1e3 < budget:
        assert relative_error(taken) <= settings.spread


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=50), st.floats(0.1, 10.0))
def test_the_error_has_no_unit(times: list[float], unit: float) -> None:
    assert relative_error([t * unit for t in times]) == pytest.approx(relative_error(times), rel=1e-6, abs=1e-9)


def test_the_error_is_the_medians() -> None:
    """Against the spread of medians of many samples of a normal distribution."""
    normal = statistics.NormalDist(10.0, 1.0)
    groups = [normal.samples(25, seed=seed) for seed in range(400)]
    wanted = statistics.stdev(statistics.median(g) for g in groups) / 10.0
    assert statistics.median(relative_error(g) for g in groups) == pytest.approx(wanted, rel=0.15)
    assert relative_error([1.0]) == math.inf


def test_limits_follow_the_prediction() -> None:
    settings = Settings(floor_s=2.0, limit_factor=20.0, first_s=60.0)
    assert limit_s(1.0, 5, settings) == 2.0
    assert limit_s(100.0, 5, settings) == 10.0
    assert first_limit_s(None, settings) == 62.0
    assert first_limit_s(1000.0, settings) == 80.0
    timer = Timer([500.0])
    samples(timer.run, settings, predicted_ms=1.0, clock=timer.clock)
    # What the first run took counts where the prediction was too low: a slow candidate is not one that hangs.
    assert timer.asked[1][1] == pytest.approx(20.0 * 0.5 * 6)
