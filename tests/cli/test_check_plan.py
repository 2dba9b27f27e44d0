"""``tvm-codl check MODEL --plan PLAN``: operators on the phone, the wrong one first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tvm import relay

from tests.e2e.by_hand import every_operator_split
from tests.measure.test_checked_import import write
from tvm_codl.cli.main import run
from tvm_codl.frontend.load import load_model
from tvm_codl.measure import plan_libraries
from tvm_codl.measure.checked_plan import PlanCheck
from tvm_codl.plan.files import dump_plan, load_plan
from tvm_codl.relay import partition
from tvm_codl.relay.pipeline import prepare


@pytest.fixture()
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A plan file, beside the file of its network; libraries are the test's own, as some are wrong."""
    monkeypatch.setattr(plan_libraries, "cache_dir", lambda: tmp_path)
    prepared = prepare(load_model(str(write(tmp_path, "MaxPool"))))
    dump_plan(every_operator_split(prepared), tmp_path / "plan.json")
    return str(tmp_path / "plan.json")


def network(plan: str) -> str:
    return str(Path(plan).with_name("MaxPool.onnx"))


def test_a_right_library(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    library = str(Path(plan).with_name("net.so"))
    assert run(["build", network(plan), "--plan", plan, "-o", library]) == 0
    capsys.readouterr()
    assert run(["check", network(plan), "--plan", library, "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=PlanCheck)
    assert {line.name: line.placement for line in found.operators} == {
        line.name: line.placement for line in load_plan(plan).operators
    }
    assert max(line.max_rel_err for line in found.operators) < 1e-5 and found.max_rel_err < 1e-5


def test_an_operator_that_is_wrong_on_the_phone_comes_first(
    plan: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right: Callable[..., list[relay.Expr]] = partition.piece_body

    def wrong(piece: Any, *rest: Any) -> list[relay.Expr]:
        made = right(piece, *rest)
        return [value * relay.const(1.1) for value in made] if piece.operator.name == "conv2d_1" else made

    monkeypatch.setattr(partition, "piece_body", wrong)
    assert run(["check", network(plan), "--plan", plan, "--json"]) == 4
    out, err = capsys.readouterr()
    first, *others = msgspec.json.decode(out, type=PlanCheck).operators
    assert first.name == "conv2d_1" and first.share > 0.99 and first.own == pytest.approx(0.1, rel=0.01)
    assert all(line.own < 1e-5 for line in others) and any(line.max_rel_err > 1e-2 for line in others)
    assert "conv2d_1 (" in err and "--what-if conv2d_1=cpu" in err


def test_a_phone_without_a_plan_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "net.onnx", "--rpc-tracker", "127.0.0.1:9190", "--rpc-key", "any"]) == 2
    assert "--plan" in capsys.readouterr().err
