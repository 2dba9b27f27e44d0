"""What is worth measuring, where the cost model is sure of itself and wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.cost.latency import network
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.split import axes as axes_of
from tvm_codl.measure import acquisition as module
from tvm_codl.measure.acquisition import acquire, doubt
from tvm_codl.plan.candidates import candidates
from tvm_codl.plan.costs import build_costs
from tvm_codl.plan.search import search
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

GRAPH = network()
AXES = {o.id: axes_of(o, GRAPH) for o in GRAPH.operators}
SHARING = TransferCost(wait_cpu_ms=0.002, wait_gpu_ms=0.002, join_ms_per_mb=0.2)


class EvenButForCpu:
    """A model to which every piece of the GPU takes its even share of 1 ms, every one of the CPU 1.2 ms however small, so
    that no split is worth while; and which is nearly sure of all."""

    def predict(self, workloads: Sequence[Workload], processor: Processor) -> NDArray[np.float64]:
        return self.estimate(workloads, processor)[0]

    def estimate(
        self, workloads: Sequence[Workload], processor: Processor
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        times = []
        for one in workloads:
            share = (one.cut.hi - one.cut.lo) / one.cut.extent if one.cut else 1.0
            times.append(1.2 if one.cut and processor == "cpu" else share)
        return np.array(times), np.full(len(times), 0.01)

    def measured(self, key: str, processor: Processor) -> bool:
        return Workload.from_key(key).cut is None


def wanted_on() -> set[str]:
    """The processors of the pieces that are worth a measurement."""
    model = EvenButForCpu()
    choices = candidates(GRAPH, AXES, model)
    plan = search(GRAPH, choices, SHARING, AXES).plan
    found = acquire(GRAPH, AXES, choices, build_costs(GRAPH, choices, SHARING, AXES), plan, model)
    return {one.probe.processor for one in found.probes if one.probe.axis}


def test_a_piece_far_from_its_even_share_is_worth_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cpu" in wanted_on()
    monkeypatch.setattr(module, "DOUBT", 0.0)
    assert not wanted_on(), "without doubt the model's own deviation hides it"


def test_doubt_grows_with_the_distance_from_the_even_share() -> None:
    assert doubt(0.1, 2.0, 2.0) == pytest.approx(0.1)
    assert doubt(0.1, 4.0, 2.0) == doubt(0.1, 1.0, 2.0) > doubt(0.1, 3.0, 2.0) > 0.1


@pytest.mark.parametrize(("ms", "even_ms"), [(1.0, 0.0), (1.0, math.inf), (0.0, 1.0)])
def test_without_an_even_share_the_model_is_believed(ms: float, even_ms: float) -> None:
    assert doubt(0.1, ms, even_ms) == 0.1
