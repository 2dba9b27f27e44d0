"""What onnxruntime would tell its makers, and write for that, it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tvm_codl.frontend import zoo

PROGRAM = """
import sys, time
import numpy as np
from tvm_codl.frontend.reference import run_onnx
run_onnx(sys.argv[1], {"input": np.zeros((1, 3, 32, 32), "float32")})
time.sleep(1)  # it writes from a thread of its own
"""


def test_onnxruntime_writes_nothing_for_its_makers(tmp_path: Path) -> None:
    ours = {
        name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    }
    home = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(zoo.entry("small").path())], env={**ours, **home}, check=True, timeout=120
    )
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
