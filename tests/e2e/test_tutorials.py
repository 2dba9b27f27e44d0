"""The tutorials run as they are: those in order, which open as notebooks too, and the tuning scripts with a tiny budget."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest

import tvm_codl as codl
from tvm_codl.build.elf import check_library
from tvm_codl.plan.baselines.planners import PLANNERS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tutorials"
NUMBERED = sorted(FOLDER.glob("0*.py"))
TUNING = sorted((FOLDER / "tune").glob("*.py"))
OPTIONS = ("--local", "--rpc-tracker", "--rpc-proxy", "--rpc-key", "--trials", "--budget", "--output")
ERROR = re.compile(r"largest error against .*: (\S+)$", re.MULTILINE)


def run(script: Path | str, *arguments: str, cwd: Path = ROOT, seconds: int = 60) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TVM_NDK_CC"}
    return subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments],
        capture_output=True, text=True, timeout=seconds, check=False, cwd=cwd,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def run_through(name: str, folder: Path) -> tuple[str, Path]:
    """What a numbered tutorial printed, and the folder that it wrote to."""
    done = run(f"{name}.py", cwd=folder, seconds=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout, folder / "build" / "tutorials"


def is_right(printed: str) -> bool:
    found = ERROR.search(printed)
    return found is not None and float(found[1]) < 1e-3


def test_the_pages_name_every_script() -> None:
    assert [path.name[:2] for path in NUMBERED] == [f"{number:02}" for number in range(1, 8)]
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"[{path.name}]({path.name})" in page for path in NUMBERED)
    tuning = (FOLDER / "tune" / "README.md").read_text(encoding="utf-8")
    assert TUNING and all(path.name in tuning for path in TUNING)


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.stem)
def test_each_opens_as_a_notebook_with_a_picture(path: Path) -> None:
    notebook = jupytext.read(path)
    assert notebook.metadata["jupytext"]["text_representation"]["format_name"] == "percent"
    nbformat.validate(nbformat.reads(jupytext.writes(notebook, "ipynb"), as_version=4))
    first, *cells = notebook.cells
    assert first.cell_type == "markdown" and first.source.startswith(f"# {int(path.name[:2])}. ")
    code = [ast.parse(cell.source) for cell in cells if cell.cell_type == "code"]
    assert len(code) > 3 and any(cell.cell_type == "markdown" for cell in cells)
    shown = [cell.body[-1].value for cell in code if isinstance(cell.body[-1], ast.Expr)]
    assert [value.id for value in shown if isinstance(value, ast.Name)] in (["chart"], ["picture"])


@pytest.mark.parametrize("path", [*NUMBERED, *TUNING], ids=lambda path: path.stem)
def test_each_uses_public_names_only(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {
        n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "codl"
    }  # fmt: skip
    assert used and used <= set(codl.__all__)


@pytest.mark.slow
def test_a_first_plan(tmp_path: Path) -> None:
    printed, out = run_through("01_first_plan", tmp_path)
    assert is_right(printed)
    network = codl.prepare(codl.load_model("zoo:small"))
    codl.verify_plan(codl.load_plan(out / "small.plan.json"), network.graph, network.axes)
    check_library(out / "small.so", "x86_64")
    assert (out / "small.svg").stat().st_size > 1000


def test_your_model(tmp_path: Path) -> None:
    printed, out = run_through("02_your_model", tmp_path)
    assert printed.count("  evidence: ") >= 2 and printed.count("  next: ") >= 2
    assert codl.load_model(str(out / "mine.onnx"), {"picture": (1, 3, 8, 8)}).outputs == ("means",)
    assert (out / "work.svg").exists()


@pytest.mark.slow
def test_in_a_tvm_pipeline(tmp_path: Path) -> None:
    printed, out = run_through("03_in_a_tvm_pipeline", tmp_path)
    assert is_right(printed)
    check_library(out / "resnet8.so", "x86_64")
    assert (out / "resnet8.svg").exists()


@pytest.mark.slow
def test_tuning(tmp_path: Path) -> None:
    printed, out = run_through("04_tuning", tmp_path)
    assert is_right(printed)
    for name in ("small.log", "small.trials.log"):
        lines = [json.loads(line) for line in (out / name).read_text().splitlines()]
        assert lines and all("config" in line for line in lines)
    assert (out / "tuning.svg").exists()


@pytest.mark.slow
def test_a_phone_over_the_proxy(tmp_path: Path) -> None:
    printed, out = run_through("05_a_phone_over_the_proxy", tmp_path)
    assert is_right(printed)
    assert "connected to proxy 127.0.0.1:" in printed and "  evidence: " in printed
    assert (out / "proxy.svg").exists()


@pytest.mark.slow
def test_a_planner_of_your_own(tmp_path: Path) -> None:
    printed, out = run_through("06_your_own_planner", tmp_path)
    rows = {line.split()[0]: line for line in printed.splitlines() if " predicted " in line and line.endswith(" split")}
    assert set(rows) == {"cpu", "gpu", "by_speed", "tvm_codl", *PLANNERS}
    assert {name for name, row in rows.items() if "measured" in row} == {"cpu", "gpu", "by_speed", "tvm_codl"}
    assert (out / "planners.svg").exists()


def test_a_split_rule(tmp_path: Path) -> None:
    printed, out = run_through("07_split_rule", tmp_path)
    assert "['repeat', 'repeat'] can be cut along nothing" in printed
    assert "['repeat', 'repeat'] can be cut along height, channels" in printed
    assert "split and whole are equal: True" in printed and is_right(printed)
    assert (out / "split_rule.svg").exists()


@pytest.mark.parametrize("path", TUNING, ids=lambda path: path.stem)
def test_each_tuning_script_has_the_same_options(path: Path) -> None:
    done = run(path, "--help")
    assert done.returncode == 0, done.stderr
    assert f"Usage: {path.name}" in done.stdout
    assert all(option in done.stdout for option in OPTIONS)


def test_a_mistake_ends_without_a_traceback() -> None:
    done = run("tune/resnet18.py", "--local", "--rpc-tracker", "a:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--local excludes" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in TUNING])
def test_each_tuning_script_leaves_what_it_promises(name: str, tmp_path: Path) -> None:
    done = run(f"tune/{name}.py", "--trials", "2", "--budget", "5", "-o", str(tmp_path), seconds=3600)
    assert done.returncode == 0, done.stderr[-4000:]
    assert {f"{name}.log", f"{name}.plan.json", f"{name}.so"} <= {path.name for path in tmp_path.iterdir()}
    plan = codl.load_plan(tmp_path / f"{name}.plan.json")
    assert plan.model == name and plan.operators
    assert f"{name}: " in done.stderr
