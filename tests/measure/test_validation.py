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


@pytest.mark.parametrize("disturbed", [False, True])
def test_only_calm_runs_of_each_processor_say_that_its_costs_are_others(
    disturbed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In four disturbed races the plan by such costs was never the fastest, and to build it took a tenth of the command."""
    racing = SimpleNamespace(run=lambda rounds: {"cpu": [6.0] * rounds, "gpu": [4.0] * rounds}, disturbed=disturbed)
    monkeypatch.setattr(validation, "race", lambda modules, **_: racing)
    graph = convolutions(2)
    singles = {on: msgspec.structs.replace(uniform_plan(graph, on, "net"), predicted_ms=4.0) for on in PROCESSORS}
    context: Any = SimpleNamespace(usual_work={})
    found = validation.run_alone(singles, dict.fromkeys(PROCESSORS), context)  # type: ignore[arg-type]
    assert found == (Calibration() if disturbed else Calibration(cpu=1.5))
