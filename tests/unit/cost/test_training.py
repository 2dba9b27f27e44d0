"""Records to a model and its evaluation, over a store of made-up times."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cost.latency import latency, network, pieces
from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.evaluation.held_out import RESOLVED_MS, hold_out, judge
from tvm_codl.cost.model import CostModel
from tvm_codl.cost.samples import own_sigma, shape_of, typical, undisturbed
from tvm_codl.cost.training import choose, train
from tvm_codl.errors import UserError
from tvm_codl.records.record import Piece, Record
from tvm_codl.records.store import RecordStore
from tvm_codl.records.workload import Workload

GRAPH = network()
PROFILE = {"name": "b", "cpu_target": "llvm -mcpu=cortex-a76", "compute_units": 7, "max_work_group": 512}


def record(
    workload: Workload, processor: str, device: str, build: str, when: float, profile: str, scale: float
) -> Record:
    ms = latency(workload, processor) * scale  # type: ignore[arg-type]
    times = (ms, 1.01 * ms, 1.02 * ms, 3.0 * ms)
    place = Piece("conv2d")
    return Record(workload.key, place, processor, device, build, times, when, profile=profile)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Device a with two builds, then device b, known by its profile, half as fast."""
    path = tmp_path_factory.mktemp("store") / "records.sqlite"
    found = [Workload.of(o, GRAPH) for o in GRAPH.operators]
    found += [p for i in range(len(GRAPH.operators)) for p in pieces(GRAPH, i)[::2]]
    with RecordStore(path) as records:
        digest = records.keep_profile(json.dumps(PROFILE))
        for device, build, when, profile, scale in (
            *(("a", "old", 1.0, "", 9.0), ("a", "new", 2.0, "", 1.0), ("b", "new", 3.0, digest, 2.0)),
        ):
            records.add(record(w, p, device, build, when, profile, scale) for w in found for p in ("cpu", "gpu"))
    return path


def test_disturbed_repeats_do_not_count() -> None:
    assert undisturbed((1.0, 1.02, 3.0, 1.04, 1.5)) == [1.0, 1.02, 1.04]
    assert typical((1.0, 1.02, 3.0, 1.04, 1.5)) == 1.02 and typical(()) == math.inf
    # A clock's glitch is no time.
    assert typical((0.1, 1.0, 1.02, 1.01, 1.03, 2.0)) == pytest.approx(1.01, abs=0.02)
    assert own_sigma((1.0,)) > own_sigma((1.0, 1.0, 1.0, 1.0))


def test_a_few_fast_repeats_among_many_others_do_not_count() -> None:
    usual = [1.4, 1.41, 1.42, 1.43, 1.44, 1.6, 1.8, 2.0]
    assert undisturbed([1.0, 1.01, *usual]) == usual[:5]
    assert undisturbed([1.0, 1.01, 1.02, *usual]) == [1.0, 1.01, 1.02], "a quarter is no accident"


@given(st.lists(st.floats(0.0, 1e3), min_size=1, max_size=40))
def test_what_counts_is_a_run_of_the_repeats_and_no_small_part_of_them(times: list[float]) -> None:
    kept, ordered = undisturbed(times), sorted(times)
    assert 4 * len(kept) >= len(times)
    assert any(kept == ordered[at : at + len(kept)] for at in range(len(ordered)))
    assert kept[0] <= typical(times) <= kept[-1]


def test_the_newest_build_of_the_newest_device_is_learned_from(store: Path) -> None:
    said: list[str] = []
    chosen = choose(store, log=said.append)
    assert (chosen.device, chosen.build, chosen.facts) == ("b", "new", DeviceFacts.of(PROFILE))
    # Nothing tells an unknown device from another unknown one, but from b it is told.
    assert chosen.others == () and any("a:" in line for line in said)
    first = choose(store, "a", log=said.append)
    assert first.build == "new" and first.others == ("b",) and "older" not in said
    old = choose(store, "a", "old")
    assert old.samples[-1].ms == pytest.approx(9 * first.samples[-1].ms)
    for wrong in (lambda: choose(store, "c"), lambda: choose(store, "a", "none"), lambda: choose(store, operators=())):
        with pytest.raises(UserError):
            wrong()
    with pytest.raises(UserError, match="does not exist"):
        choose(store.parent / "none.sqlite")


def test_a_model_says_what_it_was_learned_from_and_how_good_it_is(store: Path, tmp_path: Path) -> None:
    chosen = choose(store, "a")
    model = train(chosen, store)
    model.save(tmp_path / "model.json")
    facts = CostModel.load(tmp_path / "model.json").provenance
    assert facts["device"] == "a" and facts["build"] == "new" and facts["other_devices"] == ["b"]
    assert facts["records"]["count"] == len(chosen.records) and facts["records"]["newest"] == 2.0
    every = [e for e in facts["error"] if e["op_class"] == "all"]
    assert len(every) == 2 and all(0 <= e["metrics"]["within_10"] <= 1 for e in every)


def test_shapes_are_held_out_whole_and_better_predicted_than_by_flops(store: Path) -> None:
    chosen = choose(store, "a")
    found = hold_out([s for s in chosen.samples if s.device == chosen.facts], chosen.facts)
    figures = {(r.device, r.learner): r.metrics for r in found.results if r.op_class == "all"}
    for processor in ("cpu", "gpu"):
        learned, flops = figures[processor, "learned"], figures[processor, "FLOPs"]
        assert learned.median_error < flops.median_error
        assert learned.coverage_80 is not None and 0.4 < learned.coverage_80 <= 1
    assert found.shapes["cpu"] == len({shape_of(s.workload) for s in chosen.samples})


def test_one_model_serves_several_devices(store: Path) -> None:
    chosen = choose(store, "a")
    model = CostModel.fit(chosen.samples, device=chosen.facts)
    workload = chosen.samples[-1].workload
    here, there = model.predict([workload], "cpu"), model.predict([workload], "cpu", DeviceFacts.of(PROFILE))
    assert here[0] == chosen.samples[-1].ms or model.measured(workload.key, "cpu")
    assert 1.3 < there[0] / here[0] < 3


def test_estimates_are_surer_near_a_measurement(store: Path) -> None:
    chosen = choose(store, "a")
    own = [s for s in chosen.samples if s.device == chosen.facts]
    model = CostModel.fit(own)
    ms, sigma = model.estimate([s.workload for s in own], "cpu")
    assert np.array_equal(ms, model.predict([s.workload for s in own], "cpu")) and (sigma > 0).all()
    near, far = [], []  # of all operators together: one alone may be like others that were measured
    for operator in GRAPH.operators:
        shape = shape_of(Workload.of(operator, GRAPH))
        unknown = [s for s in own if shape_of(s.workload) != shape]
        between = pieces(GRAPH, operator.id)[1::2]
        assert not any(model.measured(w.key, "cpu") for w in between)
        for sigmas, m in ((near, model), (far, CostModel.fit(unknown))):
            sigmas.extend(m.estimate(between, "cpu")[1])
    assert np.median(near) < 0.8 * np.median(far)
    with pytest.raises(UserError, match="every one"):
        judge(model, own)
    with pytest.raises(UserError, match="of the model's phone"):
        judge(model, [s for s in chosen.samples if s.device != chosen.facts])
    assert judge(CostModel.fit(unknown), own).samples


def test_disturbed_truth_and_what_a_clock_hardly_tells_apart_are_classes_of_their_own(store: Path) -> None:
    chosen = choose(store, device="a", build="new")
    slower = [msgspec.structs.replace(s, median_ms=1.5 * s.ms) for s in chosen.samples]
    figures = {
        (r.device, r.op_class): r.metrics for r in hold_out(slower, chosen.facts).results if r.learner == "learned"
    }
    for place in {device for device, _ in figures}:
        every, plain = figures[place, "all"], figures[place, "all, median of all repeats"]
        assert plain.n == every.n and plain.median_error > every.median_error
        small = [s for s in slower if s.ms < RESOLVED_MS and place.endswith(s.processor)]
        assert (figures[place, "below 20 us"].n if (place, "below 20 us") in figures else 0) == (
            len(small) if len(small) >= 5 else 0
        )
