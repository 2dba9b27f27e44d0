"""A cost model is fitted once to the same records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measure.null_phone import PROFILE
from tests.unit.cost.latency import latency, network
from tvm_codl.measure import fitting
from tvm_codl.measure.fitting import fit_once
from tvm_codl.measure.probe import whole_probes
from tvm_codl.records.record import Piece, Record
from tvm_codl.records.workload import Workload

PIECE = Piece("conv2d")


def test_a_model_is_fitted_once_and_predicts_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path))
    probes = whole_probes(network())
    workloads = {probe.key: Workload.from_key(probe.key) for probe in probes}
    records = [
        Record(p.key, PIECE, p.processor, "null phone", "b", (latency(workloads[p.key], p.processor),) * 3, 0.0)
        for p in probes
    ]
    failed = Record(probes[0].key, PIECE, probes[0].processor, "null phone", "b", (), 0.0, error="too slow")
    records[0] = failed
    first = fit_once(records, PROFILE, "b", ())
    monkeypatch.setattr(fitting, "model_fitter", None)
    again = fit_once(records, PROFILE, "b", ())
    for processor in ("cpu", "gpu"):
        for before, now in zip(*(model.estimate(list(workloads.values()), processor) for model in (first, again)), strict=True):  # fmt: skip
            assert before.tolist() == now.tolist()
    with pytest.raises(TypeError):
        fit_once(records[1:], PROFILE, "b", ())


def test_few_models_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path))
    probe = whole_probes(network())[0]
    for ms in range(1, fitting.KEPT_MODELS + 4):
        fit_once([Record(probe.key, PIECE, probe.processor, "p", "b", (float(ms),) * 3, 0.0)], PROFILE, "b", ())
    assert len(list((tmp_path / "models").iterdir())) == fitting.KEPT_MODELS
