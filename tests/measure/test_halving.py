"""The choice among plans that were run, by a phone of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.measure.halving import (
    FEWEST,
    LOWER_QUARTILE,
    MEDIAN,
    MOST,
    REPEATS,
    TIE,
    Validation,
    choose,
    halve_successively,
    is_unsure,
    leaders,
    safest,
)
from tvm_codl.measure.interleave import RUNS

SINGLES = ("cpu", "gpu")


class Phone:
    """Runs plans of known times; ``disturbed(call, name)`` is the factor of a call's times."""

    def __init__(
        self,
        ms: Mapping[str, float],
        disturbed: Callable[[int, str], float] = lambda call, name: 1.0,
        noise: float = 0.0,
    ) -> None:
        self.ms, self.disturbed, self.noise = ms, disturbed, noise
        self.calls: list[tuple[tuple[str, ...], int]] = []
        self.random = np.random.default_rng(0)
        self.calm = 0

    def run(self, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
        self.calls.append((tuple(names), rounds))
        call = len(self.calls) - 1
        return {
            name: [
                self.ms[name] * self.disturbed(call, name) * float(np.exp(self.noise * self.random.normal()))
                for _ in range(RUNS * rounds)
            ]
            for name in names
        }

    def race(self, predicted: Mapping[str, float], seconds: float = 60.0, quantile: float = MEDIAN) -> Validation:
        def calm() -> None:
            self.calm += 1

        return halve_successively(self.run, predicted, SINGLES, seconds=seconds, calm=calm, quantile=lambda: quantile)


def test_the_fastest_is_taken_whatever_was_predicted() -> None:
    predicted = {"cpu": 20.0, "gpu": 21.0, "a": 10.0, "b": 10.5, "c": 11.0, "d": 11.2}
    phone = Phone({"cpu": 20.0, "gpu": 22.0, "a": 12.0, "b": 13.0, "c": 11.0, "d": 14.0})
    found = phone.race(predicted)
    assert found.first == "c"
    assert found.median("c") == 11.0
    # Fewer from stage to stage, and always the better single processor.
    assert [len(names) for names, _ in phone.calls[:4]] == [6, 6, 3, 3]
    assert all("cpu" in names and {"a", "c"} <= set(names) for names, _ in phone.calls)
    assert phone.calm == 0


def test_of_plans_that_are_as_fast_the_predicted_best_is_taken() -> None:
    predicted = {"cpu": 20.0, "gpu": 21.0, "a": 10.0, "b": 10.5}
    assert Phone({"cpu": 20.0, "gpu": 22.0, "a": 10.05, "b": 10.0}).race(predicted).first == "a"
    assert Phone({"cpu": 20.0, "gpu": 22.0, "a": 10.25, "b": 10.0}).race(predicted).first == "b"


def test_a_single_processor_wins_where_it_is_faster_and_split_is_run_again() -> None:
    phone = Phone({"cpu": 10.0, "gpu": 22.0, "a": 12.0})
    found = phone.race({"cpu": 11.0, "gpu": 21.0, "a": 9.0})
    assert found.first == "cpu"
    assert phone.calm == REPEATS - 1


def test_a_split_that_was_disturbed_in_the_first_run_is_not_lost() -> None:
    phone = Phone({"cpu": 10.0, "gpu": 22.0, "a": 8.0}, lambda call, name: 2.0 if name == "a" and call < 3 else 1.0)
    found = phone.race({"cpu": 11.0, "gpu": 21.0, "a": 9.0})
    assert found.first == "a"
    assert found.median("a") == 8.0, "what the first look met is left out"
    assert phone.calm == 1


def test_a_single_processor_that_was_predicted_to_win_is_not_doubted() -> None:
    phone = Phone({"cpu": 10.0, "gpu": 22.0, "a": 12.0})
    assert phone.race({"cpu": 8.0, "gpu": 21.0, "a": 9.0}).first == "cpu"
    assert len(phone.calls) == 4


def test_a_split_within_the_noise_of_a_single_processor_is_not_taken() -> None:
    predicted = {"cpu": 22.0, "gpu": 10.0, "a": 9.0}
    assert Phone({"cpu": 22.0, "gpu": 10.0, "a": 9.98}, noise=0.1).race(predicted).first == "gpu"
    assert Phone({"cpu": 22.0, "gpu": 10.0, "a": 9.0}, noise=0.1).race(predicted).first == "a"
    assert Phone({"cpu": 22.0, "gpu": 10.0, "a": 9.8}).race(predicted).first == "a"
    # A split that is predicted to be the faster one wins ties with splits alone.
    assert Phone({"cpu": 22.0, "gpu": 10.0, "a": 10.05}).race(predicted).first == "gpu"


def test_of_two_processors_the_one_whose_calm_samples_are_faster_is_taken_in_a_disturbed_race() -> None:
    """ppocr_cls beside a GPU that other work slowed down in most samples: 0.52 ms by the CPU, 0.39 or 0.60 by the GPU."""

    class Disturbed(Phone):
        def run(self, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
            times = super().run(names, rounds)
            return times | {"gpu": [ms if self.random.random() < 0.4 else 0.60 for ms in times.get("gpu", ())]}

    predicted = {"cpu": 0.46, "gpu": 0.52, "a": 0.44}
    times = {"cpu": 0.52, "gpu": 0.39, "a": 0.53}
    assert Disturbed(times, noise=0.01).race(predicted, quantile=LOWER_QUARTILE).first == "gpu"
    assert Disturbed(times, noise=0.01).race(predicted).first == "cpu"


def test_a_split_whose_fastest_samples_alone_are_ahead_loses_to_either_processor_in_a_disturbed_race() -> None:
    """ppocr_cls again: most samples of the split and of the GPU were slow, and the CPU was faster than these."""

    class Disturbed(Phone):
        def run(self, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
            slow = {"gpu": 0.85, "a": 0.64}
            return {
                name: [ms if self.random.random() < 0.4 else slow.get(name, ms) for ms in times]
                for name, times in super().run(names, rounds).items()
            }

    predicted = {"cpu": 0.43, "gpu": 0.50, "a": 0.41}
    found = Disturbed({"cpu": 0.57, "gpu": 0.50, "a": 0.41}, noise=0.01).race(predicted, quantile=LOWER_QUARTILE)
    assert found.first in SINGLES


def test_without_a_single_processor_the_fastest_split_is_the_safest() -> None:
    assert safest("a", {"a": [1.0, 2.0], "b": [2.0, 2.0]}, []) == "a"


def test_a_network_without_a_split_is_a_race_of_two() -> None:
    assert Phone({"cpu": 10.0, "gpu": 9.0}).race({"cpu": 8.0, "gpu": 21.0}).first == "gpu"


def test_of_two_processors_the_one_that_was_disturbed_at_first_is_not_lost() -> None:
    phone = Phone({"cpu": 9.0, "gpu": 10.0}, lambda call, name: 2.0 if name == "cpu" and call < 2 else 1.0)
    assert phone.race({"cpu": 8.0, "gpu": 8.0}).first == "cpu"


def test_slow_networks_get_the_fewest_rounds_and_fast_ones_no_more_than_the_most() -> None:
    slow, fast = Phone({"cpu": 9000.0, "gpu": 9000.0, "a": 8800.0}), Phone({"cpu": 0.9, "gpu": 0.9, "a": 0.88})
    predicted = {"cpu": 0.9, "gpu": 0.9, "a": 0.5}
    slow.race(predicted)
    fast.race(predicted)
    assert [rounds for _, rounds in slow.calls] == list(FEWEST)
    assert [rounds for _, rounds in fast.calls] == [FEWEST[0], MOST[0] - FEWEST[0], *MOST[1:]]


def test_a_split_far_ahead_as_predicted_ends_the_race() -> None:
    predicted = {"cpu": 10.0, "gpu": 12.0, "a": 6.0}
    short = Phone({"cpu": 10.0, "gpu": 12.0, "a": 6.0}, noise=0.05)
    assert short.race(predicted).first == "a"
    assert [rounds for _, rounds in short.calls] == [FEWEST[0], MOST[0] - FEWEST[0]]
    # Not where it is hardly ahead, where another one was predicted to be, or where a processor alone is.
    for ms, say in (({"a": 9.5}, {}), ({"b": 9.0}, {"b": 5.0}), ({}, {"a": 11.0}), ({"a": 13.0, "cpu": 6.0}, {})):
        long = Phone({"cpu": 10.0, "gpu": 12.0, "a": 6.0} | ms, noise=0.05)
        long.race(predicted | say)
        assert len(long.calls) > 3


@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.floats(1, 2), st.floats(1, 2)), min_size=1))
def test_what_is_chosen_is_within_a_tie_of_the_fastest(drawn: dict[str, tuple[float, float]]) -> None:
    middle = {name: ms for name, (ms, _) in drawn.items()}
    predicted = {name: ms for name, (_, ms) in drawn.items()}
    chosen = choose(middle, predicted)
    assert middle[chosen] <= min(middle.values()) * (1 + TIE)
    assert all(predicted[chosen] <= predicted[n] for n, ms in middle.items() if ms <= min(middle.values()) * (1 + TIE))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
@settings(max_examples=examples(40))
def test_leaders_are_in_order_and_hold_the_best_split_and_the_best_single(seed: int, splits: int) -> None:
    random = np.random.default_rng(seed)
    names = ["cpu", "gpu", *(f"plan {i}" for i in range(splits))]
    samples = {name: random.uniform(1, 2, 5).tolist() for name in names}
    kept = leaders(samples, names, dict.fromkeys(names, 1.0), SINGLES)
    middle = {name: float(np.median(times)) for name, times in samples.items()}
    assert kept == [name for name in names if name in kept]
    assert min(names[2:], key=middle.__getitem__) in kept
    assert [name for name in kept if name in SINGLES] == [min(SINGLES, key=middle.__getitem__)]
    assert len(kept) - 1 == min(splits, max(2, -(-splits // 2)))
    assert {*SINGLES} < {*leaders(samples, names, dict.fromkeys(names, 1.0), SINGLES, LOWER_QUARTILE)}


def test_an_order_is_unsure_where_the_rounds_disagree() -> None:
    one = [10.0, 10.1, 9.9, 10.0, 10.2, 9.8]
    assert not is_unsure([one, [ms * 1.1 for ms in one]])
    assert not is_unsure([one, [ms * 1.001 for ms in one]]), "a tie is none of order"
    assert is_unsure([one, [10.4, 9.0, 12.0, 10.3, 9.2, 11.0]])
    # What slows a whole round down says nothing of the order.
    slowed = [1.0, 3.0, 1.0, 2.0, 1.0, 1.5]
    assert not is_unsure([[10 * s for s in slowed], [10.5 * s for s in slowed]])
