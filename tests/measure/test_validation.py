"""What validation does beside the race."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.unit.plan.networks import convolutions
from tvm_codl.measure import validation
from tvm_codl.plan.calibration import Calibration
from tvm_codl.plan.candidates import PROCESSORS
from tvm_codl.plan.plan import uniform_plan


@pytest.mark.parametrize(
    ("factors", "disturbed", "said"),
    [
        ((1.0, 1.0), False, True),
        ((1.0, 1.0), True, False),
        ((0.98, 1.02), False, True),
        ((0.5, 1.5), False, False),
    ],
)
def test_only_calm_and_steady_runs_of_each_processor_say_that_its_costs_are_others(
    factors: tuple[float, float], disturbed: bool, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In four disturbed races the plan by such costs was never the fastest, and on cores that did not keep their speed in two of
    13."""

    def run(rounds: int) -> dict[str, list[float]]:
        return {"cpu": [6.0 * factor for factor in factors] * rounds, "gpu": [4.0, 4.0] * rounds}

    racing = SimpleNamespace(run=run, disturbed=disturbed)
    monkeypatch.setattr(validation, "race", lambda modules, **_: racing)
    graph = convolutions(2)
    singles = {on: msgspec.structs.replace(uniform_plan(graph, on, "net"), predicted_ms=4.0) for on in PROCESSORS}
    context: Any = SimpleNamespace(usual_work={})
    found = validation.run_alone(singles, dict.fromkeys(PROCESSORS), context)  # type: ignore[arg-type]
    assert found == (Calibration(cpu=pytest.approx(1.5)) if said else Calibration())
