"""The remote tutorial as its page has it: a proxy, a phone behind it, and the script in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.phone.servers import phone_server, tvm_process
from tvm_codl.errors import CheckFailed

FOLDER = Path(__file__).parents[2] / "tutorials" / "remote"
ROW = r"{}: (\d+\.\d+) ms, (\d+\.\d+) GFLOP/s\n"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / "gemm.py"), *arguments],
        capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])},
    )  # fmt: skip


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tutorial_gemm", FOLDER / "gemm.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_through_a_proxy(tmp_path: Path) -> None:
    with tvm_process("rpc_proxy") as (host, port), phone_server(tmp_path, proxy=f"{host}:{port}", key="android"):
        done = run(
            "--rpc-proxy", f"{host}:{port}", "--rpc-key", "android", "--size", "64", "--trials", "4",
            "-o", str(tmp_path / "out"),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = re.fullmatch(ROW.format("untuned") + ROW.format("tuned"), done.stdout)
    assert found and all(float(number) > 0 for number in found.groups()), done.stdout
    assert done.stderr.count("agrees with numpy") == 2
    assert {"gemm.log", "untuned.so", "tuned.so"} <= {path.name for path in (tmp_path / "out").iterdir()}
    trials = [json.loads(line) for line in (tmp_path / "out" / "gemm.log").read_text().splitlines()]
    assert len(trials) == 4 and any(trial["result"][1] == 0 for trial in trials)


def test_wrong_numbers_end_it(script: ModuleType) -> None:
    right = np.ones((4, 4), np.float32)
    script.check(right, right, "right")
    for wrong in (right + 1e-3, np.full_like(right, np.nan)):
        with pytest.raises(CheckFailed, match="not numpy's product"):
            script.check(wrong, right, "wrong")


def test_the_page_says_what_the_script_does() -> None:
    page, script = ((FOLDER / name).read_text(encoding="utf-8") for name in ("README.md", "gemm.py"))
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for line in block.splitlines()[:4]:
        assert line in script, line
    assert "tutorials/remote/gemm.py" in page
