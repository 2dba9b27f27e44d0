"""One small network under several plans in one library, for the tests of what chooses among them."""

from __future__ import annotations

from pathlib import Path

import tvm

from tests.runtime.partitions import convolutions
from tvm_codl.build.library import Library, build_adaptive

#: Name, state, rows of the CPU in the first convolution, channels of the CPU in the second.
PLANS = (("calm", "calm", 3, 4), ("less", "cpu busy", 2, 4), ("other", "gpu throttled", 3, 2))


def library(extent: int = 6, channels: int = 4) -> Library:
    parts = [
        (name, state, convolutions(extent, channels, row, channel)[0], {"name": name})
        for name, state, row, channel in PLANS
    ]
    return build_adaptive(parts, tvm.target.Target("llvm"), tvm.target.Target("opencl"), ("y",))


def exported(path: Path) -> Path:
    return library().export(path)
