from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.cost.latency import latency, network, pieces
from tests.unit.plan.networks import convolutions
from tvm_codl.cost.model import CAUTION, CostModel, Sample, samples_of
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import UserError
from tvm_codl.records.record import Piece, Processor, Record
from tvm_codl.records.workload import Workload, workloads

GRAPH = network()
WHOLES = [Workload.of(operator, GRAPH) for operator in GRAPH.operators]
PROCESSORS: tuple[Processor, Processor] = ("cpu", "gpu")


def measured(chosen: list[Workload]) -> list[Sample]:
    return [Sample(w, processor, latency(w, processor)) for w in chosen for processor in PROCESSORS]


def some_pieces(every: int) -> tuple[list[Workload], list[Workload]]:
    """(measured, held out): of each operator's pieces one in ``every`` is measured."""
    found = [piece for index in range(len(GRAPH.operators)) for piece in pieces(GRAPH, index)]
    return found[::every], [piece for index, piece in enumerate(found) if index % every]


def errors(model: CostModel, held_out: list[Workload], processor: Processor) -> NDArray[np.float64]:
    true = np.array([latency(w, processor) for w in held_out])
    missed: NDArray[np.float64] = np.abs(model.predict(held_out, processor) / true - 1)
    return missed


def test_what_was_measured_is_predicted_as_it_is() -> None:
    known, _ = some_pieces(3)
    model = CostModel.fit(measured(WHOLES + known))
    for processor in PROCESSORS:
        for workload in WHOLES + known:
            assert model.predict([workload], processor)[0] == latency(workload, processor)
            assert model.measured(workload.key, processor)


def test_caution_is_added_to_what_was_not_measured_alone() -> None:
    known, held_out = some_pieces(3)
    model = CostModel.fit(measured(WHOLES + known))
    for processor in PROCESSORS:
        careful = model.cautious().predict
        assert np.array_equal(careful(WHOLES + known, processor), model.predict(WHOLES + known, processor))
        np.testing.assert_allclose(careful(held_out, processor), CAUTION * model.predict(held_out, processor))


@pytest.mark.parametrize(("every", "median", "hits"), [(3, 0.04, 0.8), (6, 0.06, 0.7)])
def test_held_out_pieces_are_within_reach(every: int, median: float, hits: float) -> None:
    known, held_out = some_pieces(every)
    model = CostModel.fit(measured(WHOLES + known))
    found = np.concatenate([errors(model, held_out, processor) for processor in PROCESSORS])
    assert np.median(found) <= median
    assert (found <= 0.1).mean() >= hits


def test_whole_operators_alone_give_pieces_in_proportion_or_better() -> None:
    model = CostModel.fit(measured(WHOLES))
    _, held_out = some_pieces(3)
    found = np.concatenate([errors(model, held_out, processor) for processor in PROCESSORS])
    assert np.median(found) <= 0.15


def test_measured_neighbours_bound_a_prediction() -> None:
    operator = GRAPH.operators[3]
    rows = workloads(operator, GRAPH, [("height", 0, at) for at in range(1, 32)])
    known = [rows[7], rows[15], rows[23]]
    model = CostModel.fit(measured([*WHOLES, *known]))
    for processor in PROCESSORS:
        times = model.predict(rows, processor)
        for low, high in ((7, 15), (15, 23)):
            inside = times[low : high + 1]
            assert inside.min() == times[low] and inside.max() == times[high]
        assert times[-1] <= latency(WHOLES[3], processor)


def test_one_sample_is_enough_for_an_answer() -> None:
    model = CostModel.fit([Sample(WHOLES[0], "gpu", 2.0)])
    times = model.predict([*WHOLES, *pieces(GRAPH, 0)], "gpu")
    assert np.isfinite(times).all() and (times > 0).all()
    with pytest.raises(UserError, match="nothing of the cpu"):
        model.predict(WHOLES, "cpu")


def test_what_cannot_run_is_infinite_and_so_are_its_pieces() -> None:
    failed = Sample(WHOLES[2], "gpu", math.inf)
    others = [s for s in measured(WHOLES) if s.workload != WHOLES[2] or s.processor == "cpu"]
    model = CostModel.fit([*others, failed])
    assert np.isinf(model.predict([WHOLES[2], *pieces(GRAPH, 2)], "gpu")).all()
    assert np.isfinite(model.predict([WHOLES[2], *pieces(GRAPH, 2)], "cpu")).all()
    with pytest.raises(UserError, match="no measurement"):
        CostModel.fit([failed])


def test_where_all_that_was_tried_failed_nothing_runs(tmp_path: Path) -> None:
    failed = Sample(WHOLES[2], "gpu", math.inf)
    model = CostModel.fit([*[s for s in measured(WHOLES) if s.processor == "cpu"], failed])
    model.save(tmp_path / "model.json")
    for one in (model, CostModel.load(tmp_path / "model.json")):
        assert np.isinf(one.predict(WHOLES, "gpu")).all() and np.isinf(one.estimate(WHOLES, "gpu")[0]).all()
        assert np.isfinite(one.predict(WHOLES, "cpu")).all()


def test_samples_are_the_typical_time_of_all_repeats() -> None:
    key, other = WHOLES[0].key, WHOLES[1].key

    def record(workload: str, times: tuple[float, ...], error: str = "") -> Record:
        return Record(workload, Piece("conv2d"), "cpu", "phone", "b", times, 0.0, error=error)

    # Two of six repeats were disturbed.
    first, second = (1.0, 5.0, 1.02), (1.04, 6.0, 1.01)
    found = samples_of([record(key, first), record(other, (), "hang"), record(key, second), record(key, (), "lost")])
    assert [(s.workload, s.ms) for s in found] == [(WHOLES[0], pytest.approx(1.015)), (WHOLES[1], math.inf)]
    assert 0.01 <= found[0].sigma < 0.03


def test_a_saved_model_is_json_and_predicts_the_same(tmp_path: Path) -> None:
    known, held_out = some_pieces(3)
    failed = Sample(workloads(GRAPH.operators[0], GRAPH, [("height", 0, 5)])[0], "gpu", math.inf)
    model = CostModel.fit([*measured(WHOLES + known), failed], {"device": "phone"})
    model.save(tmp_path / "model.json")
    loaded = CostModel.load(tmp_path / "model.json")
    for processor in PROCESSORS:
        for chosen in (held_out, WHOLES, [failed.workload]):
            assert np.array_equal(loaded.predict(chosen, processor), model.predict(chosen, processor))
    assert loaded.provenance["device"] == "phone"
    count = len(WHOLES + known)
    assert loaded.provenance["samples"] == {"cpu": count, "gpu": count + 1}
    assert json.loads((tmp_path / "model.json").read_text())["format"] == 3


def test_other_files_are_no_models(tmp_path: Path) -> None:
    CostModel.fit(measured(WHOLES)).save(tmp_path / "good.json")
    value = json.loads((tmp_path / "good.json").read_text())
    value["provenance"]["features"] = ["other"]
    for content in ("", "{}", "[]", "3", '{"format": 2}', json.dumps(value)):
        (tmp_path / "model.json").write_text(content)
        with pytest.raises(UserError, match=r"model\.json cannot be used"):
            CostModel.load(tmp_path / "model.json")
    with pytest.raises(UserError):
        CostModel.load(tmp_path / "missing.json")


def test_learning_is_deterministic() -> None:
    known, held_out = some_pieces(3)
    one, two = (CostModel.fit(measured(WHOLES + known)) for _ in range(2))
    assert np.array_equal(one.predict(held_out, "gpu"), two.predict(held_out, "gpu"))


def test_a_hundred_operators_of_twenty_pieces_are_predicted_as_each_alone() -> None:
    graph = convolutions(1, size=24, channels=24)
    cuts = [("height", 0, at) for at in range(1, 11)] + [("channels", 0, at) for at in range(1, 11)]
    some = workloads(graph.operators[0], graph, cuts)
    model = CostModel.fit(measured(WHOLES + some_pieces(3)[0]))
    alone = [model.predict([w], "gpu")[0] for w in some]
    np.testing.assert_allclose(model.predict(some * 100, "gpu"), alone * 100, rtol=1e-6)


def test_sharing_costs() -> None:
    cost = TransferCost(wait_cpu_ms=0.02, wait_gpu_ms=0.03, copy_ms_per_mb=2.0, join_ms_per_mb=4.0)
    megabyte, nothing = np.array([1e6]), np.zeros(1)
    assert cost.edge_ms(nothing, nothing, nothing)[0] == 0
    assert cost.edge_ms(megabyte, nothing, nothing)[0] == pytest.approx(2.02)
    assert cost.edge_ms(nothing, megabyte, nothing)[0] == pytest.approx(2.03)
    # Both processors wait at the same time.
    assert cost.edge_ms(megabyte, megabyte, nothing)[0] == pytest.approx(4.03)
    assert cost.edge_ms(nothing, nothing, megabyte)[0] == pytest.approx(4.0)
