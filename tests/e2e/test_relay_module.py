"""A Relay module through the session's verbs: measured, planned, built, run and compared with TVM's own executor."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tvm_codl as codl
from tests.frontend.test_relay_module import small, weights
from tvm_codl.frontend.reference import reference_outputs


def test_plan_build_run_and_bench(tmp_path: Path) -> None:
    prepared = codl.prepare(codl.from_relay(small(), weights(), name="mine"))
    with codl.connect(records=tmp_path / "records.sqlite") as session:
        plan = session.plan(prepared, budget_s=3)
        assert plan.model == "mine"
        codl.verify_plan(plan, prepared.graph, prepared.axes)
        module = session.open(session.build(prepared, plan, tmp_path / "mine.so"))
        assert [port.name for port in module.outputs] == ["output0", "output1"]
        inputs = prepared.model.sample_inputs(seed=1)
        for got, want in zip(module.run(inputs), reference_outputs(prepared.model, inputs), strict=True):
            assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()
        report = session.bench(prepared, plan=plan, repeat=2)
    assert report.model == "mine" and report.max_rel_err <= 1e-3
