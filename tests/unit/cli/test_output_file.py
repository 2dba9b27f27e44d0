"""Options that name a file to write: what cannot be written is a usage error before any work."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import msgspec
import pytest

from tvm_codl.cli.main import run
from tvm_codl.cli.output_file import OUTPUT_FILE

#: Each ends in the option whose file follows; a model that is not there would be the first work's error, with code 1.
COMMANDS = [
    ["bench", "zoo:nothing", "-o"],
    ["bench", "zoo:nothing", "--timeline"],
    ["build", "zoo:nothing", "-o"],
    ["evaluate", "--records", "none.sqlite", "--picture"],
    ["evaluate", "--records", "none.sqlite", "--html"],
    ["measure", "zoo:nothing", "-o"],
    ["plan", "zoo:nothing", "-o"],
    ["rank", "zoo:nothing", "--html"],
    ["records", "export", "--records", "none.sqlite", "-o"],
    ["report", "zoo:nothing", "-o"],
    ["run", "zoo:nothing", "-o"],
    ["run", "zoo:nothing", "--timeline"],
    ["train", "--records", "none.sqlite", "-o"],
    ["tune", "zoo:nothing", "-o"],
    ["tune", "zoo:nothing", "--html"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_refuses_first_what_it_cannot_write(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, str(tmp_path / "missing" / "x")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Usage" in err and words[-1] in err
    assert f"the folder {tmp_path / 'missing'} is not there; make it: mkdir -p" in err
    assert list(tmp_path.iterdir()) == []


def refused(path: Path) -> str:
    with pytest.raises(click.BadParameter) as raised:
        OUTPUT_FILE.convert(str(path), None, None)
    return raised.value.message


def test_what_is_refused_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refused(tmp_path) == f"{tmp_path} is a folder; name a file in it"
    assert refused(tmp_path / "file" / "x") == f"{tmp_path / 'file'} is a file, not a folder to write x into"
    assert refused(tmp_path / "a b" / "x").endswith(f"mkdir -p '{tmp_path / 'a b'}'")


def test_what_must_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for ``os.access``: root may write everything."""
    closed = {tmp_path / "closed", tmp_path / "old.json"}
    (tmp_path / "closed").mkdir()
    (tmp_path / "old.json").touch()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in closed and access(path, mode))
    assert refused(tmp_path / "closed" / "x").startswith(f"the folder {tmp_path / 'closed'} must not be written")
    assert "old.json' is not writable" in refused(tmp_path / "old.json")
    assert OUTPUT_FILE.convert(tmp_path / "x", None, None) == tmp_path / "x"


def test_what_can_be_written_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text("old")
    for name in ("new.json", "old.json", str(tmp_path / "new.json"), os.devnull):
        assert OUTPUT_FILE.convert(name, None, None) == Path(name)
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"] and Path("old.json").read_text() == "old"


class Report(msgspec.Struct):
    """As much of a bench's report as ``--json`` asks for."""

    model: str
    timeline: tuple[dict[str, Any], ...] = ()


def test_a_bench_prints_its_report_also_where_the_timeline_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()

    class NoPhone:
        def bench(self, prepared: Any, **options: Any) -> Report:
            shutil.rmtree(folder)
            return Report("net")

    monkeypatch.setattr("tvm_codl.frontend.load.load_model", lambda source, shapes: source)
    monkeypatch.setattr("tvm_codl.relay.pipeline.prepare", lambda model: SimpleNamespace(name="net"))
    monkeypatch.setattr("tvm_codl.api.connect", lambda spec, **options: contextlib.nullcontext(NoPhone()))
    assert run(["bench", "zoo:small", "--no-check", "--timeline", str(folder / "t.pftrace"), "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {"model": "net"}
    assert f"error: {folder / 't.pftrace'} cannot be used" in err and "Traceback" not in err
