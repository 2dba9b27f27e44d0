from __future__ import annotations

import json
from pathlib import Path

import pytest

from tvm_codl.cli.main import run


def test_what_is_kept_is_shown_and_cleared_and_measurements_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path))
    for name in ("compiled/id/ab/abcd.kernel", "libraries/a.so", "answers/phone.jsonl", "records.sqlite"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    assert run(["cache"]) == 0
    assert "compiled" in capsys.readouterr().out
    assert run(["cache", "--clear", "--json"]) == 0
    found = {f["name"]: (f["files"], f["bytes"]) for f in json.loads(capsys.readouterr().out)["folders"]}
    assert found == {"compiled": (1, 5), "libraries": (1, 5), "models": (0, 0), "networks": (0, 0), "kernels": (0, 0)}
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["phone.jsonl", "records.sqlite"]
