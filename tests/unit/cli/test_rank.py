from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.report.test_ranking import ranking
from tvm_codl.cli import rank
from tvm_codl.cli.main import run
from tvm_codl.cli.options import PhoneChoice


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rank"], "Missing argument"),
        (["rank", "zoo:small", "zoo:small"], "zoo:small is named twice"),
        (["rank", "zoo:small", "--top", "-1"], "--top"),
        (["rank", "zoo:small", "--local", "--rpc-tracker", "a:1"], "--local excludes"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err


def test_a_page_is_written_beside_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = SimpleNamespace(rank=lambda networks, **options: ranking())
    monkeypatch.setattr(PhoneChoice, "connect", lambda phone: contextlib.nullcontext(session))
    network = SimpleNamespace(graph=SimpleNamespace(operators=()))
    monkeypatch.setattr(rank, "read_network", lambda source, shape: network)
    assert run(["rank", "a.onnx", "b.onnx", "--html", str(tmp_path / "rank.html"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    text = (tmp_path / "rank.html").read_text()
    assert all(f">{model['model']}</th>" in text for model in found["predicted"])
