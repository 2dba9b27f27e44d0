"""Whether the cores were the library's own while it was timed: what the kernel and known work say of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

from tests.runtime.partitions import convolutions
from tvm_codl import runtime
from tvm_codl.build.library import build
from tvm_codl.runtime.comodule import CoModule

#: Computes on the core that it is given, until it is ended.
BUSY = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print('ready', flush=True)\nwhile True: pass"


@pytest.fixture(scope="module")
def module(opencl: None, tmp_path_factory: pytest.TempPathFactory) -> CoModule:
    split, _ = convolutions(extent=48, channels=32, row=24, channel=32)
    path = tmp_path_factory.mktemp("lib") / "model.so"
    library = build(split, tvm.target.Target("llvm"), tvm.target.Target("opencl")).export(path)
    made = CoModule(tvm.runtime.load_module(str(library)), tvm.cpu())
    made.set_inputs({"x": np.zeros((1, 48, 48, 32), "float32")})
    return made


def test_a_turn_has_waits_by_sample_and_known_work_by_core(module: CoModule) -> None:
    turn = module.watch(2, 5)
    assert len(turn.ms) == len(turn.waited_ms) == 5
    assert min(turn.ms) > 0 and min(turn.waited_ms) >= 0
    assert all(0.01 < ms < 1e3 for ms in turn.work_ms)
    assert tvm.get_global_func("codl.waited_ms")() > 0


def test_known_work_stays_in_registers(tmp_path: Path) -> None:
    """A product each for twelve sums, one behind the other: a loop over sums in memory takes now longer, now less long."""
    source, assembly = Path(runtime.__file__).with_name("native") / "coexec" / "known_work.cc", tmp_path / "work.s"
    subprocess.run(["g++", "-std=c++17", "-O2", "-S", str(source), "-o", str(assembly)], check=True)
    assert len(re.findall(r"^\s+(?:v?mulps|fmul|fmla)\b", assembly.read_text(), re.MULTILINE)) >= 12


@pytest.mark.alone
def test_another_process_on_the_core_is_seen_as_waiting(module: CoModule) -> None:
    if not Path("/proc/thread-self/schedstat").exists():
        pytest.skip("this kernel does not say how long threads wait")
    cores = os.sched_getaffinity(0)
    core = min(cores)
    os.sched_setaffinity(0, {core})
    try:
        # As many runs as take longer than the kernel's turns.
        number = int(100 / min(module.benchmark(1, 5))) + 1
        calm = min(each.waited_ms[0] / each.ms[0] for each in (module.watch(number, 1) for _ in range(5)))
        with subprocess.Popen([sys.executable, "-c", BUSY, str(core)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            beside = [module.watch(number, 1) for _ in range(5)]
            process.kill()
    finally:
        os.sched_setaffinity(0, cores)
    assert np.median([each.waited_ms[0] / each.ms[0] for each in beside]) > calm + 0.05
