"""The whole way on a small network: measure a phone, plan, build one library, run it there, and compare with onnxruntime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

import tvm_codl as codl
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.measure.interleave import Race
from tvm_codl.plan.candidates import legal_cuts
from tvm_codl.plan.plan import PlannedOperator
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.timeline import read_events
from tvm_codl.report.trace import write_trace

FIELDS = {  # DESIGN, conventions: what `bench --json` prints
    "cpu_ms", "gpu_ms", "coexec_ms", "best_single_ms", "speedup", "ideal_ms", "efficiency", "predicted_ms", "overlap",
    "max_abs_err", "max_rel_err", "copied_bytes", "plan", "device",
}  # fmt: skip


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return codl.prepare(codl.load_model("zoo:small"))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[codl.Session]:
    """A phone on this machine.  When all tests are done with it, neither a process nor a file of it may be left."""
    folder = tmp_path_factory.mktemp("temporary")
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        with codl.connect(records=tmp_path_factory.mktemp("records") / "records.sqlite") as session:
            assert session.phone.where.startswith("direct 127.0.0.1")
            yield session
        assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
        assert not [path.name for path in folder.iterdir() if path.name.startswith("tvm-codl-")]


@pytest.fixture(scope="module")
def plan(prepared: Prepared, session: codl.Session, tmp_path_factory: pytest.TempPathFactory) -> codl.Plan:
    folder = tmp_path_factory.mktemp("plan")
    with pytest.MonkeyPatch.context() as patch:
        # Other tests run beside this one, and times of such a race are not kept.
        patch.setattr(Race, "disturbed", False)
        made = session.plan(prepared, budget_s=5)
    ran = session.plan_runs()
    assert {"cpu", "gpu"} <= {one["on"] for record in ran for one in msgspec.json.decode(record.placements)}
    assert made.measured_ms in {record.median_ms for record in ran}
    codl.dump_plan(made, folder / "plan.json")
    read = codl.load_plan(folder / "plan.json")
    assert read == made
    codl.verify_plan(read, prepared.graph, prepared.axes)
    return read


@pytest.fixture(scope="module")
def split_plan(prepared: Prepared) -> codl.Plan:
    """Every operator split where it can be, each along another of its axes, as a person might type it."""
    lines = []
    for operator in prepared.graph.operators:
        axes = [axis for axis in prepared.axes[operator.id].values() if legal_cuts(axis)]
        placement = codl.Placement("cpu")
        if axes:
            axis = axes[operator.id % len(axes)]
            cuts = legal_cuts(axis)
            placement = codl.Placement("split", axis.name, cuts[len(cuts) // 2])
        lines.append(PlannedOperator(operator.id, operator.name, placement))
    assert sum(line.placement.on == "split" for line in lines) >= len(lines) - 1
    plan = codl.Plan("small", "by hand", tuple(lines))
    codl.verify_plan(plan, prepared.graph, prepared.axes)
    return plan


def assert_right(prepared: Prepared, module: codl.CoModule) -> None:
    for seed in (0, 1):
        inputs = prepared.model.sample_inputs(seed)
        (wanted,) = reference_outputs(prepared.model, inputs)
        (found,) = module.run(inputs)
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= 1e-3 * np.abs(wanted).max()


def test_the_measured_plan_runs_and_is_right(
    prepared: Prepared, session: codl.Session, plan: codl.Plan, tmp_path: Path
) -> None:
    assert [o.operator for o in plan.operators] == [o.id for o in prepared.graph.operators]
    assert plan.predicted_ms > 0
    assert all(o.reason for o in plan.operators)
    module = session.open(session.build(prepared, plan, tmp_path / "small.so"))
    assert [path.name for path in tmp_path.iterdir()] == ["small.so"]
    assert [p.name for p in module.inputs] == ["input"]
    assert_right(prepared, module)
    assert msgspec.convert(module.about.plan, codl.Plan) == plan


def test_every_operator_split_is_right_and_its_timeline_opens_in_perfetto(
    prepared: Prepared, session: codl.Session, split_plan: codl.Plan, tmp_path: Path
) -> None:
    # The library that the benchmark below takes from the cache.
    module = session.open(session.library(prepared, split_plan))
    assert_right(prepared, module)
    assert len(module.benchmark(1, 3)) == 3
    events = read_events(module.timeline())
    kernels = [e for e in events if e.kind == "kernel"]
    assert {e.processor for e in kernels} == {"cpu", "gpu"}
    path = tmp_path / "small.pftrace"
    write_trace(path, events, "small")
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    begun = [p.track_event.name for p in trace.packet if p.track_event.type == p.track_event.TYPE_SLICE_BEGIN]
    assert sorted(begun) == sorted(e.name for e in events)


def test_bench_gives_every_field(
    prepared: Prepared, session: codl.Session, split_plan: codl.Plan, tmp_path: Path
) -> None:
    report = session.bench(prepared, plan=split_plan, plan_path="by-hand.json", repeat=2)
    fields = msgspec.json.decode(msgspec.json.encode(report))
    assert fields.keys() >= FIELDS
    for name in ("cpu_ms", "gpu_ms", "coexec_ms"):
        assert fields[name].keys() == {"median", "p10", "p90", "n"}
        assert 0 < fields[name]["p10"] <= fields[name]["median"] <= fields[name]["p90"]
    best = min(fields["cpu_ms"]["median"], fields["gpu_ms"]["median"])
    assert fields["best_single_ms"] == pytest.approx(best)
    assert fields["speedup"] == pytest.approx(best / fields["coexec_ms"]["median"])
    assert fields["efficiency"] == pytest.approx(fields["ideal_ms"] / fields["coexec_ms"]["median"])
    assert 0 <= fields["overlap"] <= 1
    assert fields["max_rel_err"] <= 1e-3
    assert (fields["plan"], fields["device"]) == ("by-hand.json", session.device)
