from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.cost.evaluation.metrics import deviations, folds, holdout, metrics, pooled
from tvm_codl.errors import CheckFailed, UserError

GROUPS = st.lists(st.integers(0, 12), min_size=2, max_size=60).filter(lambda groups: len(set(groups)) > 1)


def test_metrics_by_hand() -> None:
    measured = np.array([1.0, 1.0, 2.0, 4.0])
    found = metrics(measured, np.array([1.04, 0.92, 2.36, 2.0]), np.full(4, 0.1))
    assert (found.n, found.within_5, found.within_10, found.within_20) == (4, 0.25, 0.5, 0.75)
    assert found.median_error == pytest.approx((0.08 + 0.18) / 2)
    assert found.p90_error == pytest.approx(0.18 + 0.7 * (0.5 - 0.18))
    # log-errors 0.04, 0.08, 0.17 and 0.69 against 0.067, 0.128 and 0.164
    assert (found.coverage_50, found.coverage_80, found.coverage_90) == (0.25, 0.5, 0.5)


def test_a_normal_interval() -> None:
    assert deviations(0.9) == pytest.approx(1.6449, abs=1e-4)


@pytest.mark.parametrize("predicted", [[1.0, float("nan")], [1.0, 0.0], [1.0, float("inf")], [1.0]])
def test_what_is_no_prediction_is_refused(predicted: list[float]) -> None:
    with pytest.raises(CheckFailed):
        metrics(np.ones(2), np.array(predicted))


def test_pooled_is_the_mean_of_figures_and_keeps_what_is_not_stated_unstated() -> None:
    first = metrics(np.ones(2), np.array([1.0, 1.2]), np.ones(2))
    second = metrics(np.ones(4), np.full(4, 1.3))
    found = pooled([first, second])
    assert (found.n, found.within_10) == (6, 0.25)
    assert found.coverage_90 is None
    with pytest.raises(CheckFailed):
        pooled([])


@given(GROUPS, st.integers(0, 5))
def test_no_group_lies_on_both_sides(groups: list[int], seed: int) -> None:
    splits = [holdout(groups, 0.3, seed), *folds(groups, 4, seed)]
    for training, test in splits:
        assert len(training) and len(test)
        assert sorted([*training, *test]) == list(range(len(groups)))
        assert not {groups[i] for i in training} & {groups[i] for i in test}
    tests = [i for _, test in splits[1:] for i in test]
    assert sorted(tests) == list(range(len(groups)))


@given(GROUPS, st.randoms())
def test_a_split_does_not_depend_on_the_order_of_samples(groups: list[int], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(groups)
    random.shuffle(shuffled)
    assert {groups[i] for i in holdout(groups, 0.3, 1)[1]} == {shuffled[i] for i in holdout(shuffled, 0.3, 1)[1]}


def test_one_group_cannot_be_held_out() -> None:
    with pytest.raises(UserError):
        holdout(["a", "a"])
    with pytest.raises(UserError):
        folds(["a", "a"])
