"""From a model and a phone to measurements, on a null device: what is asked of the measuring session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.measure.null_meter import NullMeter
from tests.unit.cost.latency import latency, network
from tvm_codl.cost.model import CostModel, samples_of
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import DeviceError
from tvm_codl.graph.split import axes
from tvm_codl.measure import learning
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.context import Context
from tvm_codl.measure.learning import learn, measure_grid
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.measure.settings import Settings
from tvm_codl.records.store import RecordStore
from tvm_codl.records.workload import Workload

GRAPH = network()
PREPARED: Any = SimpleNamespace(graph=GRAPH, axes={o.id: axes(o, GRAPH) for o in GRAPH.operators}, name="net")
PHONE = SimpleNamespace(profile=SimpleNamespace(name="null device"))
TOOLS: Any = SimpleNamespace(cpu=None, gpu=None, kernel_id="b", records=())
#: The costliest operator on the GPU.
BAD = max(
    (probe for probe in whole_probes(GRAPH) if probe.processor == "gpu"),
    key=lambda probe: latency(Workload.from_key(probe.key), "cpu"),
)


@pytest.fixture()
def meters(monkeypatch: pytest.MonkeyPatch) -> list[NullMeter]:
    """The sessions that are opened, of which in the first one a candidate fails."""
    opened: list[NullMeter] = []

    def measurer(prepared: Any, context: Context) -> NullMeter:
        meter = NullMeter(GRAPH, context.store)
        if not opened:
            meter.bad = {(BAD.key, BAD.processor)}
        opened.append(meter)
        return meter

    monkeypatch.setattr(learning.Measurer, "of", measurer)
    monkeypatch.setattr(learning, "measure_transfers", lambda phone, tools: TransferCost(0.002, 0.002))
    monkeypatch.setattr(learning, "model_fitter", lambda *_: lambda records: CostModel.fit(samples_of(records)))
    monkeypatch.setattr(learning, "grid_probes", lambda graph, axes: whole_probes(graph))
    return opened


def test_what_failed_is_tried_again_when_asked(meters: list[NullMeter], tmp_path: Path) -> None:
    retried: list[list[Probe]] = []
    for budget, again in (("22", False), ("4", False), ("4", True)):
        with RecordStore(tmp_path / "records.sqlite") as store:
            learn(PREPARED, Context(PHONE, store, TOOLS), Budget.parse(budget), again)
        retried.append(meters[-1].retried)
    assert retried == [[], [], [BAD]]
    assert [meter.ended for meter in meters] == [1, 1, 1]


def test_a_session_that_breaks_off_tells_its_drift_too(
    meters: list[NullMeter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object, **__: object) -> None:
        raise DeviceError("the phone is gone")

    monkeypatch.setattr(NullMeter, "measure", lose)
    with RecordStore(tmp_path / "records.sqlite") as store:
        context = Context(PHONE, store, TOOLS)
        with pytest.raises(DeviceError):
            learn(PREPARED, context, Budget.parse("22"))
        with pytest.raises(DeviceError):
            measure_grid(PREPARED, context)
    assert [meter.ended for meter in meters] == [1, 1]


@pytest.mark.parametrize(("budget", "cool_s"), [("20s", 2.0), ("1h", Settings().cool_s), ("40", Settings().cool_s)])
def test_the_budget_bounds_cooling_down(
    budget: str, cool_s: float, meters: list[NullMeter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Settings] = []
    made = learning.Measurer.of

    def of(prepared: Any, context: Context) -> Any:
        given.append(context.settings)
        return made(prepared, context)

    monkeypatch.setattr(learning.Measurer, "of", of)
    with RecordStore(tmp_path / "records.sqlite") as store:
        learn(PREPARED, Context(PHONE, store, TOOLS), Budget.parse(budget))
    assert [settings.cool_s for settings in given] == [cool_s]


def test_transfers_are_measured_once_for_several_networks(
    meters: list[NullMeter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = [TransferCost(0.002, 0.002), TransferCost(0.004, 0.004)]
    monkeypatch.setattr(learning, "measure_transfers", lambda phone, tools: measured.pop(0))
    now = learning.time.time()
    with RecordStore(tmp_path / "records.sqlite") as store:
        context = Context(PHONE, store, TOOLS)
        for later_s, left in ((0.0, 1), (learning.RECENT_S - 1, 1), (learning.RECENT_S + 9, 0)):
            monkeypatch.setattr(learning.time, "time", lambda later_s=later_s: now + later_s)
            # The lower median of both.
            assert learning.usual_transfer_cost(context).wait_cpu_ms == 0.002 and len(measured) == left
        other = Context(PHONE, store, SimpleNamespace(cpu=None, gpu=None, kernel_id="c"))
        with pytest.raises(IndexError):
            learning.usual_transfer_cost(other)


def test_what_transfers_run_is_compiled_ahead_unless_they_were_just_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(learning, "compile_programs", compiled.append)
    monkeypatch.setattr(learning, "measure_transfers", lambda phone, tools: TransferCost(0.002, 0.002))
    with RecordStore(tmp_path / "records.sqlite") as store:
        context = Context(PHONE, store, TOOLS)
        learning.compile_ahead(context)
        assert compiled == [TOOLS]
        learning.usual_transfer_cost(context)
        learning.compile_ahead(context)
        assert compiled == [TOOLS]


def test_so_it_is_in_a_grid(meters: list[NullMeter], tmp_path: Path) -> None:
    for again in (False, True):
        with RecordStore(tmp_path / "records.sqlite") as store:
            found = measure_grid(PREPARED, Context(PHONE, store, TOOLS), again)
        assert len(found) == len(whole_probes(GRAPH)) and meters[-1].ended == 1
        assert [record.ok for record in found].count(False) == (not again)
        assert meters[-1].retried == (whole_probes(GRAPH) if again else [])
