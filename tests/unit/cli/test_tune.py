from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tvm_codl.cli import tune
from tvm_codl.cli.main import run
from tvm_codl.cli.options import PhoneChoice


class Tuned(msgspec.Struct):
    """As the tuner's, which needs TVM."""

    processor: str = "gpu"
    task: str = "conv2d_nhwc.codl"
    estimate_ms: float = 2.0
    best_ms: float = 1.0
    gflops: float = 40.0
    trials: int = 64
    new: int = 3


class Report(msgspec.Struct):
    records: str = "net.log"
    trials: str = "net.trials.log"
    tuned: tuple[Tuned, ...] = (Tuned(),)
    finished: int = 0
    failed: int = 0


def test_a_page_is_written_beside_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = SimpleNamespace(device="a phone", tune=lambda prepared, output, **options: Report())
    monkeypatch.setattr(PhoneChoice, "connect", lambda phone: contextlib.nullcontext(session))
    monkeypatch.setattr(tune, "read_network", lambda source, shape: SimpleNamespace(name="net"))
    monkeypatch.chdir(tmp_path)
    assert run(["tune", "net.onnx", "--html", "tuned.html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tuned"][0]["task"] == "conv2d_nhwc.codl"
    text = (tmp_path / "tuned.html").read_text()
    assert "20.0 → 40.0" in text and "a phone" in text and "net.log" in text
