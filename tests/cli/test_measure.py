"""The words of ``tvm-codl measure``: what it takes for a budget, and what excludes what."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tvm_codl import api
from tvm_codl.cli.main import run
from tvm_codl.plan.files import load_plan
from tvm_codl.plan.plan import Plan


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "soon"], "'soon' is no budget"),
        (["--budget", "0"], "'0' is no budget"),
        (["--grid", "-o", "plan.json"], "--grid makes no plan"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["measure", "zoo:small", "--no-check", "--records", str(tmp_path / "r.sqlite"), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err
    assert not list(tmp_path.iterdir())


@pytest.fixture()
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the command asks for; no phone is measured, and the plan is empty."""
    calls: list[dict[str, Any]] = []

    class NoPhone:
        def measure(self, prepared: Any, budget: Any, retry_failed: bool) -> SimpleNamespace:
            calls.append({"grid": False, "retry_failed": retry_failed})
            return SimpleNamespace(plan=Plan("net", "phone", ()), measured=3, rounds=(), why="stands")

        def measure_grid(self, prepared: Any, retry_failed: bool) -> list[Any]:
            calls.append({"grid": True, "retry_failed": retry_failed})
            return []

    monkeypatch.setattr("tvm_codl.frontend.load.load_model", lambda source, shapes: source)
    monkeypatch.setattr("tvm_codl.relay.pipeline.prepare", lambda model: SimpleNamespace(name="net"))
    monkeypatch.setattr("tvm_codl.api.connect", lambda spec, **options: contextlib.nullcontext(NoPhone()))
    return calls


@pytest.mark.parametrize("grid", [[], ["--grid"]])
def test_what_failed_is_tried_again_when_asked(grid: list[str], asked: list[dict[str, Any]]) -> None:
    assert run(["measure", "zoo:small", "--no-check", *grid]) == 0
    assert run(["measure", "zoo:small", "--no-check", *grid, "--retry-failed"]) == 0
    assert [(call["grid"], call["retry_failed"]) for call in asked] == [(bool(grid), False), (bool(grid), True)]


def test_the_result_is_printed_also_where_the_plan_cannot_be_written(
    asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plans" / "plan.json"
    path.parent.mkdir()
    assert run(["measure", "zoo:small", "--no-check", "-o", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"] == 3 and load_plan(path).model == "net"

    connected = api.connect

    @contextlib.contextmanager
    def meanwhile(spec: Any, **options: Any) -> Iterator[Any]:
        path.unlink()
        path.parent.rmdir()
        with connected(spec, **options) as session:
            yield session

    monkeypatch.setattr("tvm_codl.api.connect", meanwhile)
    assert run(["measure", "zoo:small", "--no-check", "-o", str(path), "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["measured"] == 3
    assert f"error: {path} cannot be used" in err and "  next: ls -ld" in err
