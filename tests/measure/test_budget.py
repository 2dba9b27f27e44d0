"""Budgets: what they say, and that no more is spent."""

from __future__ import annotations

import math

import pytest

from tvm_codl.errors import UsageError
from tvm_codl.measure import budget as module
from tvm_codl.measure.budget import Budget, Purse


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("200", Budget(measurements=200)),
        ("1", Budget(measurements=1)),
        ("90s", Budget(seconds=90)),
        ("5min", Budget(seconds=300)),
        (" 1.5 min ", Budget(seconds=90)),
        ("2h", Budget(seconds=7200)),
    ],
)
def test_a_plain_number_counts_and_a_unit_makes_it_time(text: str, wanted: Budget) -> None:
    assert Budget.parse(text) == wanted


@pytest.mark.parametrize("text", ["", "0", "0s", "-5", "1.5", "5 minutes", "5m", "nan", "inf", "1e3", "min"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no budget"):
        Budget.parse(text)


def test_a_number_is_left_until_it_is_spent() -> None:
    purse = Purse(Budget(measurements=10))
    assert purse.left == 10
    purse.spend(7, 1000.0)
    assert purse.left == 3
    purse.spend(3, 1.0)
    assert purse.left == 0


def test_time_buys_as_many_as_the_ones_before_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    purse = Purse(Budget(seconds=60))
    assert purse.left > 1e6, "nothing measured yet: the speed is not known"
    purse.spend(10, 20.0)
    assert purse.left == 30
    now += 50
    assert purse.left == 5
    now += 10
    assert purse.left == 0


def test_without_bounds_there_is_always_more() -> None:
    purse = Purse(Budget())
    purse.spend(1000, 1000.0)
    assert purse.left > 1e6
    assert math.isinf(Budget().measurements)
