"""The package as a wheel: it holds all that a network needs, its native part too, which is built at first use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_codl as codl

ROOT = Path(codl.__file__).parents[1]


def run(*words: str, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=1800, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_runs_a_network(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(ROOT / "tvm_codl", source / "tvm_codl", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run("pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), ".", folder=source)
    (wheel,) = tmp_path.glob("*.whl")
    run("pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel), folder=tmp_path)

    variables = {"PYTHONPATH": str(site), "TVM_CODL_CACHE": str(tmp_path / "cache")}
    bench = ("bench", "zoo:small", "--budget", "5", "--repeat", "3", "--json", "--html", "small.html")
    found = json.loads(run("tvm_codl", *bench, folder=tmp_path, **variables))
    assert found["coexec_ms"]["median"] > 0 and found["max_rel_err"] < 1e-3
    assert "A run on the phone" in (tmp_path / "small.html").read_text()
    where = run("tvm_codl.runtime.compile", folder=tmp_path, **variables)
    assert str(tmp_path / "cache") in where
