"""CONTRIBUTING.md's worked examples, applied to a copy of the tree: few files are touched, and their tests pass."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"```python\n# file: (\S+) \((append|new|(before|after): ([^\n]+))\)\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^python -m pytest (.+)$", re.MULTILINE)


def section(title: str) -> str:
    return dict(SECTION.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))[title]


def apply(text: str, tree: Path) -> set[str]:
    """Applies each block of ``text`` below ``tree``; returns the paths of the files that changed.

    The line before or after which a block goes is found whatever its indentation.
    """
    changed = set()
    for name, how, side, anchor, body in BLOCK.findall(text):
        path = tree / name
        assert path.exists() == (how != "new"), name
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if how != "new" else []
        at = len(lines)
        if anchor:
            (at,) = [at for at, line in enumerate(lines, side == "after") if line.strip() == anchor]
        path.write_text("".join([*lines[:at], body, *lines[at:]]), encoding="utf-8")
        changed.add(name)
    return changed


@pytest.mark.parametrize(
    ("title", "touched"),
    [
        ("Add a split rule", {"tvm_codl/graph/rules.py"}),
        ("Add a Relay pass", {"tvm_codl/relay/relu_once.py", "tvm_codl/relay/pipeline.py"}),
    ],
)
def test_the_example_works_as_written(title: str, touched: set[str], tmp_path: Path) -> None:
    for folder in ("tvm_codl", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    text = section(title)
    changed = apply(text, tmp_path)
    assert {name for name in changed if not name.startswith("tests/")} == touched
    for words in (["ruff", "check"], ["ruff", "format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", *words, *changed], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    commands = COMMAND.findall(text)
    assert commands
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *shlex.split(command)],
            cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
