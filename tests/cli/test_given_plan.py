"""Plans that are given to commands, without a phone that would run them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tests.measure.null_phone import PROFILE
from tests.unit.plan.networks import convolutions
from tests.unit.plan.test_search import legal
from tvm_codl.cli.main import run
from tvm_codl.plan.files import dump_plan
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.records.settings import Settings
from tvm_codl.relay.prepared import Prepared


@contextlib.contextmanager
def connected(place: Any, **settings: Any) -> Iterator[Any]:
    yield SimpleNamespace(profile=PROFILE)


@pytest.mark.parametrize("command", ["run", "bench"])
def test_settings_that_the_phone_cannot_do_are_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = convolutions(2)
    prepared = Prepared(SimpleNamespace(name="net"), graph, {}, None, legal(graph))  # type: ignore[arg-type]
    monkeypatch.setattr("tvm_codl.frontend.load.load_model", lambda source, shapes: object())
    monkeypatch.setattr("tvm_codl.relay.pipeline.prepare", lambda model: prepared)
    monkeypatch.setattr("tvm_codl.api.connect_phone", connected)
    dump_plan(replace(uniform_plan(graph, "cpu"), settings=Settings(cpu_threads=9)), tmp_path / "plan.json")
    assert run([command, "net.onnx", "--no-check", "--plan", str(tmp_path / "plan.json")]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "9 CPU threads are more than there are cores" in err


def test_a_plan_that_is_given_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "net.onnx", "--plan", "cpu-only", "-o", str(tmp_path / "plan.json")]) == 2
    assert "leave out one of them" in capsys.readouterr().err
