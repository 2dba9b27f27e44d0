"""Explaining, changing and comparing plans of a small network, from what was kept of a phone that was measured once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_codl as codl

WATTS = "idle_w: 0.4\ncpu_w: 3.5\ngpu_w: 1.2\nboth_w: 4.3\n"
#: A phone that cannot be reached: nothing may ask for it.
NO_PHONE = ["--rpc-tracker", "127.0.0.1:9", "--rpc-key", "none", "--rpc-timeout", "1"]


def line(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(codl.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "tvm_codl", *arguments], cwd=folder, capture_output=True, text=True, timeout=1800,
        check=False, env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds ``records.sqlite``, ``plan.json`` and a power table."""
    made = tmp_path_factory.mktemp("editing")
    (made / "power.yaml").write_text(WATTS)
    prepared = codl.prepare(codl.load_model("zoo:small"))
    with codl.connect(records=made / "records.sqlite") as session:
        found = session.measure(prepared, "40")
    codl.dump_plan(found.plan, made / "plan.json")
    return made


def test_a_plan_is_explained_without_a_phone(folder: Path) -> None:
    words = ["plan", "zoo:small", "--plan", "plan.json", "--explain", "--records", "records.sqlite", *NO_PHONE]
    text = line(folder, *words)
    assert text.returncode == 0, text.stderr
    assert "without the phone" in text.stderr
    assert max(map(len, text.stdout.splitlines())) <= 80 and "second choice" in text.stdout
    told = json.loads(line(folder, *words, "--json").stdout)
    plan = json.loads((folder / "plan.json").read_text())
    assert [o["operator"] for o in told["operators"]] == [o["operator"] for o in plan["operators"]]
    assert all(o["second"] and o["deviation"] > 0 for o in told["operators"])
    nothing = line(folder, *[word.replace("records.sqlite", "none.sqlite") for word in words])
    assert nothing.returncode == 0 and "none.sqlite does not exist" in nothing.stderr
    assert "predicted: " in nothing.stdout


def test_what_if_plans_around_what_was_asked_and_the_result_is_a_plan(folder: Path) -> None:
    words = ["plan", "zoo:small", "--plan", "plan.json", "--what-if", "1=cpu", "--records", "records.sqlite", *NO_PHONE]
    done = line(folder, *words, "-o", "cpu.json", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"as_is", "alone", "replanned", "moves", "plan"} <= found.keys()
    assert found["plan"]["operators"][1]["placement"]["on"] == "cpu"
    assert line(folder, "plans", "verify", "zoo:small", "cpu.json").returncode == 0
    stated = line(folder, "plans", "diff", "plan.json", "cpu.json", "--json")
    assert stated.returncode == 0
    assert len(json.loads(stated.stdout)["lines"]) == len(found["moves"])
    priced = line(folder, "plans", "diff", "cpu.json", "gpu-only", "zoo:small", "--records", "records.sqlite", "--json")
    assert json.loads(priced.stdout)["b"]["priced_ms"] > 0, priced.stderr


def test_energy_is_planned_by_a_table_and_called_a_model(folder: Path) -> None:
    words = [
        "plan",
        "zoo:small",
        "--plan",
        "plan.json",
        "--what-if",
        "1=cpu",
        "--objective",
        "energy",
        "--records",
        "records.sqlite",
        *NO_PHONE,
    ]
    done = line(folder, *words, "--power", "power.yaml")
    assert done.returncode == 0, done.stderr
    assert "mJ" in done.stdout and "a model, not a measurement" in done.stdout
    without = line(folder, *words)
    assert without.returncode == 1 and "--power FILE" in without.stderr and "both_w" in without.stderr


def test_a_phone_that_is_named_is_asked_which_it_is_where_no_plan_says(folder: Path) -> None:
    words = ["plan", "zoo:small", "--what-if", "1=cpu", "--records", "records.sqlite"]
    named = line(folder, *words, *NO_PHONE)
    assert named.returncode == 3 and "no tracker at 127.0.0.1:9" in named.stderr
    unnamed = line(folder, *words)
    assert unnamed.returncode == 0 and "without the phone" in unnamed.stderr


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("1=height@9999", 1, "is outside 1.."),
        ("1=diagonal@3", 1, "cannot be split along 'diagonal'"),
        ("99=cpu", 1, "no operator '99'"),
        ("1", 2, "OP=PLACEMENT"),
    ],
)
def test_what_cannot_be_is_refused_in_the_verifiers_words(folder: Path, change: str, code: int, words: str) -> None:
    done = line(folder, "plan", "zoo:small", "--what-if", change, "--records", "records.sqlite", *NO_PHONE)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_hand_edited_plan_is_verified(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    plan["operators"][0]["placement"] = {"on": "split", "axis": "height", "at": 9999}
    (folder / "bad.json").write_text(json.dumps(plan))
    done = line(folder, "plans", "verify", "zoo:small", "bad.json")
    assert done.returncode == 1 and "operator 0" in done.stderr and "legal placements" in done.stderr


def test_settings_are_verified_by_the_profile_of_a_phone_that_was_measured(folder: Path) -> None:
    plan = {**json.loads((folder / "plan.json").read_text()), "settings": {"cpu_cores": [1000]}}
    (folder / "settings.json").write_text(json.dumps(plan))
    done = line(folder, "plans", "verify", "zoo:small", "settings.json", "--records", "records.sqlite")
    assert done.returncode == 1 and "core 1000 is none of the CPU's" in done.stderr and not done.stdout
    unknown = line(folder, "plans", "verify", "zoo:small", "settings.json", "--records", "none.sqlite")
    assert unknown.returncode == 0 and "the phone itself says" in unknown.stderr


def test_a_page_about_a_plan_needs_no_phone_and_one_about_a_comparison_shows_its_times(folder: Path) -> None:
    words = ["report", "zoo:small", "--records", "records.sqlite", *NO_PHONE]
    done = line(folder, *words, "--plan", "plan.json")
    assert done.returncode == 0, done.stderr
    page = (folder / "report.html").read_text()
    plan = json.loads((folder / "plan.json").read_text())
    assert all(f">{o['name']}<" in page for o in plan["operators"])
    assert "Not measured" in page and "tvm-codl plan zoo:small --plan plan.json" in page

    bench = ["bench", "zoo:small", "--plan", "plan.json", "--records", "records.sqlite", "--repeat", "3", "--json"]
    compared = line(folder, *bench, "--html", "bench.html")
    assert compared.returncode == 0, compared.stderr
    (folder / "bench.json").write_text(compared.stdout)
    assert "A run on the phone" in (folder / "bench.html").read_text()
    again = line(folder, *words, "--bench", "bench.json", "-o", "again.html")
    assert again.returncode == 0, again.stderr
    median = json.loads(compared.stdout)["coexec_ms"]["median"]
    assert f">{median:.3f}<" in (folder / "again.html").read_text()

    errors = [
        {"operator": o["operator"], "placement": o["placement"], "max_rel_err": 3e-5, "own": 0.0}
        for o in plan["operators"]
    ]
    (folder / "check.json").write_text(json.dumps({"max_rel_err": 3e-5, "operators": errors}))
    checked = line(folder, *words, "--plan", "plan.json", "--check", "check.json", "-o", "checked.html")
    assert checked.returncode == 0, checked.stderr
    assert (folder / "checked.html").read_text().count("3.0e-05 relative") == len(errors)

    by_itself = line(folder, "report", "plan.json", "--records", "records.sqlite", *NO_PHONE)
    assert by_itself.returncode == 0, by_itself.stderr
    assert "plan.json is about zoo:small" in by_itself.stderr
    (folder / "mine.json").write_text((folder / "plan.json").read_text().replace('"small"', '"mine"'))
    whose = line(folder, "report", "mine.json")
    assert whose.returncode == 1 and "tvm-codl report MODEL --plan mine.json" in whose.stderr

    (folder / "wrong.json").write_text("{}")
    wrong = line(folder, *words, "--bench", "wrong.json")
    assert wrong.returncode == 1 and "wrong.json is not what bench --json prints" in wrong.stderr
    assert "tvm-codl bench MODEL --json" in wrong.stderr
