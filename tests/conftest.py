"""What all tests share: a private cache, the reference phone's environment, and small module builders."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")
# A shell ignores interrupts for what it runs in the background, and so would everything that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def opencl() -> None:
    """OpenCL and the native plugin, in this process.  The GPU's worker gets the last core, as on the reference phone."""
    from tvm_codl.runtime import opencl as found
    from tvm_codl.runtime import plugin

    os.environ.update(found.environment())
    cores = sorted(os.sched_getaffinity(0))
    os.environ.setdefault("CODL_GPU_CORES", str(cores[-1]))
    plugin.load()


@pytest.fixture()
def library_path(tmp_path: Path) -> Path:
    return tmp_path / "model.so"
