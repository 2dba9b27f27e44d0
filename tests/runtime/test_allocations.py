"""Nothing is allocated inside a run: counted, not assumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

from tests.runtime.adaptive_networks import exported
from tests.runtime.partitions import convolutions
from tvm_codl.build.library import build
from tvm_codl.runtime import opencl as found
from tvm_codl.runtime import plugin

HERE = Path(__file__).parent


def counted(library: Path, folder: Path) -> dict[str, dict[str, int]]:
    """What ``allocating`` prints of a library."""
    counter = folder / "counter.so"
    source = str(HERE / "allocation_counter.cc")
    subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", source, "-o", str(counter), "-ldl"], check=True)
    env = {
        **os.environ,
        **found.environment(),
        "LD_PRELOAD": str(counter),
        "TVM_CODL_PLUGIN": str(plugin.path()),
        "PYTHONPATH": str(HERE.parents[1]),
    }
    command = [sys.executable, "-m", "tests.runtime.allocating", str(library), str(counter)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    counts: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return counts


@pytest.mark.alone
def test_a_run_allocates_nothing(opencl: None, tmp_path: Path) -> None:
    split, _ = convolutions(extent=6, channels=4, row=3, channel=4)
    library = build(split, tvm.target.Target("llvm"), tvm.target.Target("opencl")).export(tmp_path / "model.so")
    counts = counted(library, tmp_path)
    assert all(count["created"] > 0 for count in counts.values()), "the counter counts nothing at all"
    assert {sharing: count["runs"] for sharing, count in counts.items()} == {"svm": 0, "mapped": 0, "copied": 0}
    assert {sharing: count["longer timing"] for sharing, count in counts.items()} == {
        "svm": 0,
        "mapped": 0,
        "copied": 0,
    }


def test_choosing_among_plans_allocates_nothing(opencl: None, tmp_path: Path) -> None:
    counts = counted(exported(tmp_path / "adaptive.so"), tmp_path)
    assert all(count["created"] > 0 for count in counts.values()), "the counter counts nothing at all"
    assert {sharing: count["runs"] for sharing, count in counts.items()} == {"svm": 0, "mapped": 0, "copied": 0}
