"""The tutorials run as they are: the same options for each, and with a tiny budget the files that they promise."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_codl as codl

FOLDER = Path(__file__).parents[2] / "tutorials" / "tune"
NAMES = ("resnet18", "mobilenet_v2", "yolov2", "ppocr_det")
OPTIONS = ("--local", "--rpc-tracker", "--rpc-proxy", "--rpc-key", "--trials", "--budget", "--output")


def run(name: str, *arguments: str, seconds: int = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *arguments],
        capture_output=True, text=True, timeout=seconds, check=False,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])},
    )  # fmt: skip


def test_there_is_a_script_for_each_and_the_tutorial_names_them() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(NAMES)
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"{name}.py" in text for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_uses_public_names_only(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    used = {
        n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "codl"
    }  # fmt: skip
    assert used and used <= set(codl.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_each_has_the_same_options(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"Usage: {name}.py" in done.stdout
    assert all(option in done.stdout for option in OPTIONS)


def test_a_mistake_ends_without_a_traceback() -> None:
    done = run("resnet18", "--local", "--rpc-tracker", "a:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--local excludes" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_runs_and_leaves_what_it_promises(name: str, tmp_path: Path) -> None:
    done = run(name, "--trials", "2", "--budget", "5", "-o", str(tmp_path), seconds=3600)
    assert done.returncode == 0, done.stderr[-4000:]
    assert {f"{name}.log", f"{name}.plan.json", f"{name}.so"} <= {path.name for path in tmp_path.iterdir()}
    plan = codl.load_plan(tmp_path / f"{name}.plan.json")
    assert plan.model == name and plan.operators
    assert f"{name}: " in done.stderr
