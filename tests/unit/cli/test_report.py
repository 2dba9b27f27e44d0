"""Two pages compared; pages about a plan are tested where a network is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.report.test_page import page, row
from tvm_codl.cli.main import run
from tvm_codl.report.page import render


@pytest.fixture()
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, operators in (("a.html", (row(0), row(1))), ("b.html", (row(0),))):
        (tmp_path / name).write_text(render(page(*operators)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_pages_are_compared_and_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "a.html").read_text()
    assert run(["report", "a.html", "b.html"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "comparison.html" in err
    assert ">conv2d_1</th>" in (folder / "comparison.html").read_text()
    assert (folder / "a.html").read_text() == before and not (folder / "report.html").exists()
    assert run(["report", "a.html", "b.html", "-o", "c.html"]) == 0
    assert (folder / "c.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.html"], "tvm-codl report A.html B.html"),
        (["a.html", "b.html", "c.html"], "Usage"),
        (["a.html", "b.html", "--plan", "p.json"], "--plan"),
        (["a.html", "b.html", "--no-check"], "--no-check"),
        (["a.html", "b.html", "--budget", "20"], "--budget"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err
    assert not (folder / "comparison.html").exists()


def test_a_file_that_is_not_there_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "a.html", "missing.html"]) == 1
    assert "missing.html" in capsys.readouterr().err
