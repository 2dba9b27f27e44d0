"""The reference phone's two processors: which cores are the CPU and which are the GPU."""

from __future__ import annotations

import os

from tvm_codl.runtime import opencl

CPU_CORES, GPU_CORES = "CODL_CPU_CORES", "CODL_GPU_CORES"


def split_cores() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The cores that this process may use: the first half for the CPU, the rest for the GPU.

    A single core is shared: everything works, nothing overlaps.
    """
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    return tuple(cores[:half]), tuple(cores[half:]) or tuple(cores)


def phone_environment() -> dict[str, str]:
    """The environment of a phone's server process.

    TVM would pin its threads, and PoCL's workers would inherit that and share their core.  So TVM pins nothing, the
    session pins itself to the CPU's cores, and the native plugin pins PoCL's workers to the GPU's.
    """
    cpu, gpu = split_cores()
    return {
        CPU_CORES: ",".join(map(str, cpu)),
        GPU_CORES: ",".join(map(str, gpu)),
        "TVM_BIND_THREADS": "0",
        "TVM_NUM_THREADS": str(len(cpu)),
        "OMP_NUM_THREADS": str(len(cpu)),
        "OPENBLAS_NUM_THREADS": "1",  # a server with other threads could not fork safely
        "POCL_MAX_PTHREAD_COUNT": str(len(gpu)),
        "TOPHUB_LOCATION": "NONE",
        **opencl.environment(),
    }


def cores_from_env(variable: str) -> tuple[int, ...]:
    """The cores listed in the environment's ``variable``; empty without it."""
    return tuple(int(core) for core in os.environ.get(variable, "").split(",") if core)
