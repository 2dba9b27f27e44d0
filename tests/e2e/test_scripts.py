"""Scripts of ``benchmarks/`` that import one another start as their documents say, from any folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted(
    path
    for path in Path(__file__).parents[2].joinpath("benchmarks").glob("*.py")
    if "from benchmarks." in (text := path.read_text()) and "__main__" in text
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_starts(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script), "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "usage" in done.stdout.lower()
