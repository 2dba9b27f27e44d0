"""The plan-guided loop on a null device whose latency is a formula: what it measures, when it ends, what it keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.measure.null_meter import NullMeter
from tests.unit.cost.latency import latency, network
from tests.unit.plan.networks import Network
from tvm_codl.cost.model import CostModel, Sample, samples_of
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import UsageError
from tvm_codl.graph.split import axes as axes_of
from tvm_codl.measure import guided as module
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.guided import Guided, GuidedMeasuring, grid_placements, grid_probes
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.plan.candidates import predict_splits
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.search import search
from tvm_codl.records.record import Processor
from tvm_codl.records.store import RecordStore
from tvm_codl.records.workload import Workload

SHARING = TransferCost(wait_cpu_ms=0.002, wait_gpu_ms=0.002, join_ms_per_mb=0.2)
GRAPH = network()
AXES = {o.id: axes_of(o, GRAPH) for o in GRAPH.operators}


@pytest.fixture()
def store(tmp_path: Path) -> Iterator[RecordStore]:
    with RecordStore(tmp_path / "records.sqlite") as opened:
        yield opened


def guided(meter: NullMeter, budget: Budget, lines: list[str] | None = None, retry_failed: bool = False) -> Guided:
    return GuidedMeasuring(
        meter.graph,
        {operator.id: axes_of(operator, meter.graph) for operator in meter.graph.operators},
        meter,
        SHARING,
        budget,
        lambda records: CostModel.fit(samples_of(records)),
        {(record.workload, record.processor): record for record in meter.store},
        log=(lines if lines is not None else []).append,
    ).run(retry_failed)


class Truth:
    """The null device's latencies in a cost model's place."""

    def predict(self, workloads: Sequence[Workload], processor: Processor) -> NDArray[np.float64]:
        return np.array([latency(workload, processor) for workload in workloads])


def true_ms(plan: Plan) -> float:
    """What the plan takes on the null device, waits and layouts included."""
    model = Truth()
    choices = module.candidates(GRAPH, AXES, model)
    chosen = {}
    for planned, operator in zip(plan.operators, GRAPH.operators, strict=True):
        at = planned.placement
        whole = choices[operator.id][at.on == "gpu"]
        chosen[operator.id] = (
            tuple(predict_splits(GRAPH, AXES, model, [(operator, at)])) if at.on == "split" else (whole,)
        )
    costs = module.build_costs(GRAPH, chosen, SHARING, AXES)
    return costs.simulate([0] * len(chosen)).total_ms


def test_a_tenth_of_the_grid_gives_a_plan_as_good_as_the_whole(store: RecordStore) -> None:
    grid = grid_probes(GRAPH, AXES)
    samples = [Sample(w, p.processor, latency(w, p.processor)) for p in grid for w in [Workload.from_key(p.key)]]
    model = CostModel.fit(samples)
    choices = module.candidates(GRAPH, AXES, model)
    for id, split in grid_placements(GRAPH, AXES):
        choices[id] += tuple(predict_splits(GRAPH, AXES, model, [(GRAPH.operators[id], split)]))
    best = search(GRAPH, choices, SHARING, AXES).plan
    meter = NullMeter(GRAPH, store)
    found = guided(meter, Budget(measurements=len(grid) // 10))
    assert len(meter.taken) <= len(grid) // 10
    assert true_ms(found.plan) <= 1.03 * true_ms(best)


def test_both_processors_take_turns_with_the_operators_of_most_work(store: RecordStore) -> None:
    meter = NullMeter(GRAPH, store)
    guided(meter, Budget(seconds=0.0))
    first = meter.taken[:12]
    for part in (first[::2], first[1::2]):  # as they are dealt to two libraries
        assert [probe.processor for probe in part].count("gpu") == 3
    assert all(a.key == b.key for a, b in zip(first[::2], first[1::2], strict=True))


@pytest.mark.parametrize("most", [2, 15, 22, 31])
def test_a_number_of_measurements_is_kept_exactly(store: RecordStore, most: int) -> None:
    meter = NullMeter(GRAPH, store)
    found = guided(meter, Budget(measurements=most))
    assert len(meter.taken) == len(set(meter.taken)) == len(store) == found.measured == most
    assert found.why == "budget"


def test_a_budget_for_less_than_one_a_processor_is_refused(store: RecordStore) -> None:
    meter = NullMeter(GRAPH, store)
    with pytest.raises(UsageError, match="too small"):
        guided(meter, Budget(measurements=1))


def test_it_ends_when_the_plan_stands(store: RecordStore) -> None:
    meter = NullMeter(GRAPH, store)
    found = guided(meter, Budget(measurements=10_000))
    assert found.why == "stands"
    assert len(meter.taken) < len(grid_probes(GRAPH, AXES)) / 2
    last = found.rounds[-module.STABLE_ROUNDS :]
    little = last[-1].gain_ms < module.STABLE_GAIN * last[-1].predicted_ms
    assert little or all(one.moved == 0 for one in last)
    # What is known now is all that there is to know: another run measures no more than one that went on would have.
    again = NullMeter(GRAPH, store)
    assert guided(again, Budget(measurements=10_000)).measured <= 3 * module.LARGEST_ROUND


def test_a_budget_of_time_that_is_over_still_gives_a_plan(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STABLE_GAIN", -1.0)
    monkeypatch.setattr(module, "STABLE_ROUNDS", 1000)
    meter = NullMeter(GRAPH, store)
    found = guided(meter, Budget(seconds=0.0))
    assert found.why == "budget"
    pieces = [probe for probe in meter.taken if probe.axis]
    assert module.FEWEST_PIECES <= len(pieces) < module.FEWEST_PIECES + module.SMALLEST_ROUND
    assert len(found.rounds) == 2, "one round measures all of them"
    assert {(p.key, "cpu") for p in whole_probes(GRAPH)} <= {(p.key, p.processor) for p in meter.taken}


@pytest.mark.parametrize("stop", [5, 25, 29])
def test_an_interrupted_run_keeps_its_records_and_the_next_goes_on(
    tmp_path: Path, store: RecordStore, stop: int
) -> None:
    def interrupt(count: int) -> None:
        if count == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guided(NullMeter(GRAPH, store, interrupt), Budget(measurements=40))
    assert len(store) == stop
    second = NullMeter(GRAPH, store)
    resumed = guided(second, Budget(measurements=40 - stop))
    assert len(store) == len({(r.workload, r.processor) for r in store}) == stop + resumed.measured
    # All of the budget, unless the plan stood before.
    assert resumed.measured == 40 - stop if resumed.why == "budget" else resumed.measured <= 40 - stop
    with RecordStore(tmp_path / "whole.sqlite") as other:
        once = guided(NullMeter(GRAPH, other), Budget(measurements=40))
    assert true_ms(resumed.plan) == pytest.approx(true_ms(once.plan), rel=0.05)


def test_the_same_records_give_the_same_measurements_and_plan(tmp_path: Path) -> None:
    runs = []
    for name in ("a", "b"):
        with RecordStore(tmp_path / name) as store:
            meter = NullMeter(GRAPH, store)
            runs.append((guided(meter, Budget(measurements=35)).plan, meter.taken))
    assert runs[0] == runs[1]


def test_every_round_says_what_it_gained(store: RecordStore) -> None:
    lines: list[str] = []
    found = guided(NullMeter(GRAPH, store), Budget(measurements=45), lines)
    assert lines == [str(one) for one in found.rounds]
    assert len(lines) >= 3
    assert re.fullmatch(r"round 0: predicted [\d.]+ ms, first plan; \d+ measurements, [\d.]+ ms more to gain", lines[0])
    for line in lines[1:]:
        assert re.fullmatch(
            r"round \d+: predicted [\d.]+ ms, \d+ operators moved, -?[\d.]+ ms gained; "
            r"\d+ measurements, [\d.]+ ms more to gain",
            line,
        )
    assert [one.measured for one in found.rounds] == sorted(one.measured for one in found.rounds)
    assert all(one.gained_ms >= -1e-6 for one in found.rounds), "the last plan is among the choices of the next"


def test_the_costliest_operators_come_first_where_the_budget_is_short(store: RecordStore) -> None:
    meter = NullMeter(GRAPH, store)
    guided(meter, Budget(measurements=4))
    work = {Workload.of(o, GRAPH).key: o.flops for o in GRAPH.operators}
    measured = {p.key for p in meter.taken}
    assert min(work[k] for k in measured) >= max(f for k, f in work.items() if k not in measured)


@pytest.mark.parametrize(("gpu_speed", "matters"), [(1, False), (10_000, True)])
def test_a_trifle_is_not_measured_on_the_gpu_to_begin_with(store: RecordStore, gpu_speed: int, matters: bool) -> None:
    """Unless the GPU is so fast that it is none there."""
    made = Network(1, 96, 96, 32)
    made.conv(made.conv(made.conv(0, 96), 4, stride=32), 4)
    meter = NullMeter(made.graph(), store)
    meter.gpu_speed = gpu_speed
    guided(meter, Budget(measurements=8))
    times = {p.key: latency(Workload.from_key(p.key), "cpu") for p in whole_probes(meter.graph)}
    trifles = {key for key, ms in times.items() if ms < module.WORTH_MEASURING * sum(times.values())}
    assert len(trifles) == 1
    on_gpu = [{p.key for p in batch if p.processor == "gpu" and not p.axis} for batch in meter.batches]
    assert on_gpu[1] == times.keys() - trifles
    assert (trifles <= set.union(*on_gpu)) == matters


@pytest.fixture()
def failed(store: RecordStore) -> list[Probe]:
    """The costliest operators, which failed on the GPU in an earlier run."""
    probes = [probe for probe in whole_probes(GRAPH) if probe.processor == "gpu"]
    probes.sort(key=lambda probe: -latency(Workload.from_key(probe.key), "cpu"))
    meter = NullMeter(GRAPH, store)
    meter.bad = {(probe.key, probe.processor) for probe in probes[:3]}
    guided(meter, Budget(measurements=22))
    assert {(r.workload, r.processor) for r in store if not r.ok} == meter.bad
    return probes[:3]


def test_what_failed_is_tried_again_only_when_asked(store: RecordStore, failed: list[Probe]) -> None:
    meter = NullMeter(GRAPH, store)
    guided(meter, Budget(measurements=8))
    assert not meter.retried and not {p.key for p in failed} & {p.key for p in meter.taken if p.processor == "gpu"}
    meter = NullMeter(GRAPH, store)
    found = guided(meter, Budget(measurements=8), retry_failed=True)
    assert sorted(p.key for p in meter.retried) == sorted(p.key for p in failed)
    assert found.measured == len(meter.taken) <= 8
    newest = {(r.workload, r.processor): r for r in store}
    assert all(newest[p.key, p.processor].ok for p in failed)
    meter = NullMeter(GRAPH, store)
    guided(meter, Budget(measurements=8), retry_failed=True)
    assert not meter.retried, "nothing fails any more"


def test_what_fails_again_is_tried_once_and_what_the_budget_leaves_stays_failed(
    store: RecordStore, failed: list[Probe]
) -> None:
    meter, lines = NullMeter(GRAPH, store), list[str]()
    meter.bad = {(p.key, p.processor) for p in failed}
    found = guided(meter, Budget(measurements=2), lines, retry_failed=True)
    assert len(meter.retried) == len(meter.taken) == 2
    assert lines[0] == "1 pieces that failed before are not tried again: the budget is over"
    lines_of = zip(GRAPH.operators, found.plan.operators, strict=True)
    placed = {Workload.of(operator, GRAPH).key: line.placement.on for operator, line in lines_of}
    assert {placed[probe.key] for probe in failed} == {"cpu"}


def test_where_nothing_runs_on_the_gpu_the_plan_is_the_cpus_and_it_is_said(store: RecordStore) -> None:
    meter, lines = NullMeter(GRAPH, store), list[str]()
    meter.bad = {(probe.key, probe.processor) for probe in whole_probes(GRAPH) if probe.processor == "gpu"}
    found = guided(meter, Budget(measurements=30), lines)
    assert {o.placement.on for o in found.plan.operators} == {"cpu"} and found.plan.predicted_ms > 0
    assert lines[0].startswith("nothing of this network runs on the gpu: ") and "with: it fails; --retry" in lines[0]


def test_the_grid_is_every_axis_in_tenths() -> None:
    places = grid_placements(GRAPH, AXES)
    last = GRAPH.operators[-1]
    assert [p.at for id, p in places if id == last.id and p.axis == "channels"] == [16 * k for k in range(1, 10)]
    assert [p.at for id, p in places if id == last.id and p.axis == "height"] == [1, 2, 3, 4, 5, 6, 7]
    probes = grid_probes(GRAPH, AXES)
    assert len({(p.key, p.processor) for p in probes}) == len(probes)


def test_one_of_each_kind_is_measured_on_the_gpu_however_short(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORTH_MEASURING", 1.0)
    monkeypatch.setattr(module, "FEW", 1e9)
    monkeypatch.setattr(module, "FEWEST_PIECES", 0)  # a round may choose more of them
    meter = NullMeter(GRAPH, store)
    guided(meter, Budget(seconds=0.0))
    workloads = {Workload.of(operator, GRAPH).key: Workload.of(operator, GRAPH) for operator in GRAPH.operators}
    ran = [workloads[p.key] for p in meter.taken if p.processor == "gpu" and not p.axis]
    kinds = {(w.anchor, w.dtype) for w in workloads.values()}
    assert {(w.anchor, w.dtype) for w in ran} == kinds
    assert len(ran) == len(kinds)
