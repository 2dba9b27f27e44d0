"""A text recogniser whose LSTM TVM unrolls: a hundred small operators, and a tensor that twenty of them read."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.frontend.recurrent_models import text_recogniser
from tvm_codl.cli.main import run

#: In how many seconds the command is over.
LIMIT_S = 240.0


@pytest.mark.slow
def test_a_recogniser_with_a_recurrence_is_planned_and_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "recogniser.onnx"
    onnx.save(text_recogniser(), model)
    records = tmp_path / "records.sqlite"
    words = ["bench", str(model), "--budget", "30", "--time-limit", str(LIMIT_S), "--records", str(records), "--json"]
    assert run(words) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["max_rel_err"] < 1e-3
    assert report["predicted_ms"] > 0 and report["coexec_ms"]["n"] > 0
    assert "Traceback" not in err
