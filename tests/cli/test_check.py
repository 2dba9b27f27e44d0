"""``tvm-codl check``, and the check that other commands begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tvm import relay

from tests.measure.test_checked_import import mistaken, write
from tvm_codl.cli.main import run


def test_a_right_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(write(tmp_path, "Relu")), "--json"]) == 0
    rows = msgspec.json.decode(capsys.readouterr().out)
    assert {row["node"] for row in rows} == {"first", "suspect", "last"}
    errors = [row["max_rel_err"] for row in rows]
    assert errors == sorted(errors, reverse=True) and errors[0] < 1e-5


@pytest.mark.parametrize(("command", "operator"), [("check", "Sigmoid"), ("plan", "LeakyRelu")])
def test_a_wrong_network_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, operator: str
) -> None:
    right = relay.frontend.onnx._get_convert_map

    def wrong(opset: int) -> dict[str, Any]:
        return {**right(opset), operator: mistaken(right(opset)[operator])}

    monkeypatch.setattr(relay.frontend.onnx, "_get_convert_map", wrong)
    assert run([command, str(write(tmp_path, operator))]) == 4
    error = capsys.readouterr().err
    assert "is imported wrongly" in error and f"{operator} 'suspect'" in error


def test_the_list_of_operators_needs_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--list", "--json"]) == 0
    listed = msgspec.json.decode(capsys.readouterr().out)
    support = {row["operator"]: row["support"] for row in listed["operators"]}
    assert support["Relu"] == "yes" and support["NonZero"] == "refused" and "float16" in listed["types"]
    assert run(["check"]) == 2
