from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.records.test_exchange import fill
from tvm_codl.cli.main import run
from tvm_codl.records.store import RecordStore


@pytest.fixture()
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path / "cache"))
    fill(tmp_path / "records.db")
    return tmp_path / "records.db"


def test_ls_is_a_table_or_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["records", "ls", "--records", str(store)]) == 0
    table = capsys.readouterr().out
    assert "phone" in table and "kernel conv2d_nhwc.codl" in table and "newest" in table
    assert run(["records", "ls", "--records", str(store), "--json", "--processor", "gpu", "--mode", "alone"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["records"] == str(store)
    assert [(g["what"], g["count"], g["failed"], g["builds"]) for g in found["groups"]] == [
        ("piece", 2, 1, 1),
        ("kernel", 1, 0, 1),
    ]


def test_the_default_is_the_store_in_the_cache_folder_and_needs_no_tvm(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == "tvm_codl.api" or name.split(".")[0] == "tvm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tvm", None)
    assert run(["records", "ls"]) == 1
    assert "there is no record store" in capsys.readouterr().err
    fill(store.parent / "cache" / "records.sqlite")
    assert run(["records", "ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"]


@pytest.mark.parametrize(("name", "kernels"), [("out.log", 3), ("out.csv", 0)])
def test_what_is_exported_can_be_imported(
    store: Path, tmp_path: Path, name: str, kernels: int, capsys: pytest.CaptureFixture[str]
) -> None:
    file, other = tmp_path / name, tmp_path / "other.db"
    assert run(["records", "export", "--records", str(store), "-o", str(file)]) == 0
    for new in (3, 0):
        capsys.readouterr()
        assert run(["records", "import", str(file), "--records", str(other), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[str(file)]["new"]["pieces"] == new
    with RecordStore(other) as opened, RecordStore(store) as origin:
        assert list(opened) == list(origin) and len(list(opened.kernels())) == kernels


def test_export_without_a_file_goes_to_stdout_alone(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["records", "export", "--records", str(store), "--format", "csv", "--processor", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith('"workload","kind"') and out.count("\n") == 2
    assert "1 pieces" in err


def test_bad_lines_are_named_and_can_be_skipped(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.log"
    assert run(["records", "export", "--records", str(store), "-o", str(file)]) == 0
    file.write_text("what is this\n" + file.read_text())
    into = ["--records", str(tmp_path / "other.db")]
    assert run(["records", "import", str(file), *into]) == 1
    assert "bad.log:1" in capsys.readouterr().err
    assert run(["records", "import", str(file), *into, "--skip-bad"]) == 0
    assert "1 bad lines" in capsys.readouterr().err


def test_merge(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into = tmp_path / "all.db"
    for new in (3, 0):
        assert run(["records", "merge", str(store), str(store), "--into", str(into), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["pieces"] == new
    assert run(["records", "merge", str(tmp_path / "none.db"), "--into", str(into)]) == 1
    assert "none.db" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["merge", "a"], ["import"], ["ls", "--processor", "npu"], ["export", "--format", "x"]]
)
def test_usage_errors(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["records", *words]) == 2
    assert "Usage" in capsys.readouterr().err
