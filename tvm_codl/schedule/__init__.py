"""Kernels for both processors.  Importing this registers them with TVM, for targets of ours only."""

from __future__ import annotations

from tvm_codl.schedule import layout, opencl_source, strategy
from tvm_codl.schedule.target import cpu_target, gpu_target

__all__ = ["cpu_target", "gpu_target", "layout", "opencl_source", "strategy"]
