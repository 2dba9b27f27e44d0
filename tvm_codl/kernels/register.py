"""Kernels for both processors.  Importing this registers them with TVM, for targets of ours only."""

from __future__ import annotations

from tvm_codl.kernels import opencl_functions, strategy
from tvm_codl.kernels.schedules import layout, opencl_source
from tvm_codl.kernels.target import cpu_target, gpu_target

__all__ = ["cpu_target", "gpu_target", "layout", "opencl_functions", "opencl_source", "strategy"]
