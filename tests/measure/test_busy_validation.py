"""Which plans an adaptive library keeps, by their times beside a load, and how these are taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm

from tvm_codl.errors import DeviceError
from tvm_codl.measure import busy_validation
from tvm_codl.measure.busy_validation import RUNS, choose_busy_plan, compete, time_when_busy
from tvm_codl.plan.adaptive import StatePlan
from tvm_codl.plan.plan import Plan

NONE = Plan("net", "phone", ())
SET = (
    StatePlan("calm", "calm", NONE),
    StatePlan("less", "cpu busy", NONE),
    StatePlan("gpu only", "cpu busy", NONE),
    StatePlan("hot", "gpu throttled", NONE),
)


def names(plans: tuple[StatePlan, ...]) -> list[str]:
    return [one.name for one in plans]


def test_the_fastest_beside_the_load_is_kept_and_what_is_for_other_states() -> None:
    assert names(choose_busy_plan(SET, {0: 38.0, 1: 29.0, 2: 34.0})) == ["calm", "less", "hot"]
    assert names(choose_busy_plan(SET, {0: 38.0, 1: 35.0, 2: 34.0})) == ["calm", "gpu only", "hot"]


def test_a_plan_that_gains_nothing_is_left_out() -> None:
    assert names(choose_busy_plan(SET, {0: 30.0, 1: 29.9, 2: 34.0})) == ["calm", "hot"]


class Library:
    """A loaded adaptive library of known times."""

    cpu_cores = ([0], [1])

    def __init__(self, ms: list[float], load: list[str]) -> None:
        self.ms, self.load, self.fixed = ms, load, -1
        self.runs: list[tuple[int, bool]] = []

    def fix_plan(self, number: int | None) -> None:
        self.fixed = -1 if number is None else number

    def benchmark(self, number: int, repeat: int) -> list[float]:
        self.runs += [(self.fixed, bool(self.load))] * repeat
        return [self.ms[self.fixed]] * repeat


class Phone:
    """Notes what competes for its CPU; ``able`` phones can be made busy."""

    def __init__(self, able: bool = True) -> None:
        self.load: list[str] = []
        self.started: list[int] = []
        self.remote = SimpleNamespace(get_function=self.find if able else self.miss)

    def find(self, name: str) -> Any:
        assert name == "codl.compete"

        def compete(threads: int) -> dict[str, Any]:
            self.started.append(threads)
            self.load.append("busy")
            return {"stop": self.load.clear}

        return compete

    def miss(self, name: str) -> Any:
        raise AttributeError(name)


def test_plans_are_timed_beside_one_competitor_for_each_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_validation, "calm_down", lambda: None)
    phone = Phone()
    library = Library([40.0, 30.0, 35.0], phone.load)
    busy = time_when_busy(library, phone, range(3))  # type: ignore[arg-type]
    assert [np.median(busy[number]) for number in range(3)] == [40.0, 30.0, 35.0]
    assert set(phone.started) == {2} and not phone.load and library.fixed == -1
    assert {number for number, beside in library.runs if beside} == {0, 1, 2}
    # The slowest is not run to the end.
    assert len(busy[0]) < len(busy[1]) and not len(busy[0]) % RUNS


def test_the_load_ends_where_a_run_fails() -> None:
    phone = Phone()
    with pytest.raises(tvm.error.TVMError), compete(phone, 1):
        raise tvm.error.TVMError("the phone is gone")
    assert not phone.load


def test_a_phone_that_cannot_be_made_busy_is_named() -> None:
    with pytest.raises(DeviceError, match="cannot be made busy"), compete(Phone(able=False), 3):
        pass
