from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.unit.plan.explain.test_what_if import planned, problem
from tests.unit.plan.networks import convolutions
from tvm_codl.cli.main import run
from tvm_codl.plan.files import dump_plan
from tvm_codl.plan.plan import Placement


@pytest.fixture()
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    plan = planned(problem(convolutions(3)))
    edited = replace(plan.operators[1], placement=Placement("gpu"))
    dump_plan(plan, tmp_path / "a.json")
    dump_plan(replace(plan, operators=(plan.operators[0], edited, plan.operators[2])), tmp_path / "b.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_diff_names_what_differs_and_ends_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plans", "diff", "a.json", "b.json"]) == 0
    text = capsys.readouterr().out
    assert "conv2d_1" in text and "conv2d_0" not in text and "1 operators differ, 2 are the same" in text
    assert run(["plans", "diff", "a.json", "b.json", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["lines"]
    assert (line["operator"], line["b"]) == (1, {"on": "gpu"})


def test_what_is_no_plan_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.json").write_text('{"model": "x"')
    assert run(["plans", "diff", "a.json", "bad.json"]) == 1
    assert "bad.json" in capsys.readouterr().err
    assert run(["plans", "diff", "a.json", "missing.json"]) == 1
    assert "missing.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--power", "p.yaml"], "add --objective energy"),
        (["--plan", "a.json", "--objective", "energy"], "leave out --plan"),
        (["--what-if", "0=cpu", "--explain"], "--what-if prints what changes"),
        (["--objective", "speed"], "'speed' is not one of"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "zoo:small", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err
