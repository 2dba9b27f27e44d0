"""Measuring a small network on the reference phone within a budget, by the command."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import tvm_codl as codl
from tvm_codl.cli.main import run
from tvm_codl.cli.output import elapsed_s
from tvm_codl.frontend import load
from tvm_codl.measure import known_network
from tvm_codl.measure.interleave import Race
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.pipeline import prepare


def test_a_budget_is_kept_the_records_are_and_the_plan_is_legal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, path = tmp_path / "records.sqlite", tmp_path / "plan.json"
    words = ["measure", "zoo:small", "--records", str(store), "-o", str(path), "--json", "--budget"]
    assert run([*words, "6"]) == 0
    out, err = capsys.readouterr()
    first = json.loads(out)
    assert (first["measured"], first["ended"], first["plan"]) == (6, "budget", str(path))
    assert [one["number"] for one in first["rounds"]] == list(range(len(first["rounds"])))
    assert all(f"round {one['number']}: predicted" in err for one in first["rounds"])
    with RecordStore(store) as opened:
        assert len(opened) == 6
    prepared = prepare(codl.load_model("zoo:small"))
    codl.verify_plan(codl.load_plan(path), prepared.graph, prepared.axes)
    # What is on record is not measured again: the second run adds to the first.
    assert run([*words, "5"]) == 0
    second = json.loads(capsys.readouterr().out)
    with RecordStore(store) as opened:
        assert len({(r.workload, r.processor) for r in opened}) == len(opened) == 6 + second["measured"]
    assert second["measured"] <= 5


def test_a_time_limit_ends_with_the_best_plan_that_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, prepared = tmp_path / "plan.json", prepare(codl.load_model("zoo:small"))
    words = ["plan", "zoo:small", "--records", str(tmp_path / "records.sqlite"), "-o", str(path), "--budget", "30"]
    for limit_s in (1.0, 8.0, 64.0, 512.0):
        # The clock of a command runs from the start of its process, which is this one.
        code = run([*words, "--time-limit", str(elapsed_s() + limit_s)])
        err = capsys.readouterr().err
        if code == 0:
            break
        assert "the time limit was over before there was a plan" in err
    assert code == 0, err
    codl.verify_plan(codl.load_plan(path), prepared.graph, prepared.axes)


def test_what_was_planned_before_is_not_planned_again_unless_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Race, "disturbed", False)  # other tests run beside this one
    store, path = tmp_path / "records.sqlite", tmp_path / "plan.json"
    words = ["plan", "zoo:small", "--records", str(store), "-o", str(path), "--budget", "3"]
    said, plans, runs = [], [], []
    for more in ([], [], ["--again"]):
        assert run([*words, *more]) == 0
        said.append(capsys.readouterr().err)
        plans.append(codl.load_plan(path))
        with RecordStore(store) as opened:
            if not runs:  # as one that left after a round when nothing else ran: it was not taken
                taken = msgspec.json.encode(plans[0].placements).decode()
                other = next(run for run in opened.plans() if run.placements != taken)
                opened.add([msgspec.structs.replace(other, times_ms=(1e-3,))])
            runs.append(len(list(opened.plans())))
    assert ["planned before" in err for err in said] == [False, True, False]
    assert plans[1].placements == plans[0].placements and plans[1].measured_ms > 0
    assert runs[0] == runs[1] < runs[2]


def test_plans_of_a_disturbed_race_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "records.sqlite"
    words = ["plan", "zoo:small", "--records", str(store), "-o", str(tmp_path / "plan.json"), "--budget", "1"]
    said, pieces, calm = [], [], []
    monkeypatch.setattr(known_network, "SETTLED_S", 0.0)
    for disturbed in (True, True, False, True):
        monkeypatch.setattr(Race, "disturbed", disturbed)
        assert run(words) == 0
        monkeypatch.setattr(load, "load_model", None)  # it is not imported again
        said.append(capsys.readouterr().err)
        with RecordStore(store) as opened:
            pieces.append(len(opened))
            calm.append(any(not one.disturbed for one in opened.plans()))
    assert calm == [False, False, True, True]
    assert ["planned before" in err for err in said] == [False, True, True, True]
    assert ["running its plans again" in err for err in said] == [False, True, True, False]
    assert ["these times price no other plan" in err for err in said] == [True, True, False, False]
    assert len(set(pieces)) == 1, "nothing is measured again"
