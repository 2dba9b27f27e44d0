"""Scripts of ``benchmarks/`` that import one another start as their documents say, from any folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TEXTS = {
    path: text
    for path in sorted(Path(__file__).parents[2].joinpath("benchmarks").glob("*.py"))
    if "__main__" in (text := path.read_text())
}
SCRIPTS = [path for path, text in TEXTS.items() if "from benchmarks." in text]
ON_A_PHONE = [path for path, text in TEXTS.items() if "PhoneChoice" in text]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_starts(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script), "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "usage" in done.stdout.lower()


@pytest.mark.parametrize("script", ON_A_PHONE, ids=lambda path: path.stem)
def test_a_script_that_measures_stops_and_fails_as_a_command_does(script: Path) -> None:
    assert f'run_command(main, "{script.name}")' in TEXTS[script]
