"""``tvm-codl plan --annotate``, by a plan that needs no phone."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tvm_codl.cli.main import run


def test_a_plan_is_written_into_a_copy_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "annotated.onnx"
    command = ["plan", "zoo:small", "--no-check", "--plan", "cpu-only", "-o", str(tmp_path / "plan.json")]
    assert run([*command, "--annotate", str(output)]) == 0
    proto = onnx.load(output)
    onnx.checker.check_model(proto, full_check=True)
    places = [{entry.key: entry.value for entry in node.metadata_props} for node in proto.graph.node]
    assert [said.get("tvm_codl.placement") for said in places] == ["cpu"] * 21 + [None]
    assert "21 of 22 nodes" in capsys.readouterr().err


def test_a_model_that_is_no_onnx_file_is_a_usage_error(tmp_path: Path) -> None:
    output = tmp_path / "annotated.onnx"
    assert run(["plan", "zoo:face_detection", "--no-check", "--plan", "cpu-only", "--annotate", str(output)]) == 2
    assert not output.exists()
