"""The reference phone's two processors: which cores are the CPU and which are the GPU."""

from __future__ import annotations

import os

from tvm_codl.runtime import opencl

CPU_CORES, GPU_CORES = "CODL_CPU_CORES", "CODL_GPU_CORES"


def halves() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The cores that this process may use, the first half for the CPU and the rest for the GPU.

    On a single core both share it: all works, nothing overlaps.
    """
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    return tuple(cores[:half]), tuple(cores[half:]) or tuple(cores)


def phone_environment() -> dict[str, str]:
    """The variables that a phone's server process must be started with.

    TVM would pin its threads, and PoCL's workers would inherit the pinning and share their core; so TVM pins nothing,
    the session pins itself to the CPU's cores, and the native plugin gives PoCL's workers the GPU's.
    """
    cpu, gpu = halves()
    return {
        CPU_CORES: ",".join(map(str, cpu)),
        GPU_CORES: ",".join(map(str, gpu)),
        "TVM_BIND_THREADS": "0",
        "TVM_NUM_THREADS": str(len(cpu)),
        "OMP_NUM_THREADS": str(len(cpu)),
        "OPENBLAS_NUM_THREADS": "1",  # a server with threads of its own could not fork its sessions safely
        "POCL_MAX_PTHREAD_COUNT": str(len(gpu)),
        "TOPHUB_LOCATION": "NONE",
        **opencl.environment(),
    }


def named(variable: str) -> tuple[int, ...]:
    """The cores that the environment names in ``variable``; empty if it names none."""
    return tuple(int(core) for core in os.environ.get(variable, "").split(",") if core)
