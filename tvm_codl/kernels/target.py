"""The two TVM targets of a phone: LLVM code for its CPU, OpenCL for its GPU.

Both carry keys of our own, so that our kernels are chosen for them only.  The key ``v<lanes>`` is the width of the vectors
in which weights are packed and results computed; a GPU's kind (:mod:`.gpu`) is a key too, and ``u<units>`` its compute
units.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable
from pathlib import Path

import tvm

from tvm_codl.kernels.gpu import LOCAL_KINDS, PHONES, Gpu, kind_in
from tvm_codl.kernels.tiles.dots import GPU_DOT, Dot, dot_of
from tvm_codl.kernels.tiles.vectors import register_lanes

CPU_KEY = "codl_cpu"
GPU_KEY = "codl_gpu"
KEY = "codl"
IMAGES = "images"

# Processors to name to LLVM where it does not know the host, by the instructions that Linux reports.
_KNOWN = (
    ("skylake-avx512", {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}),
    ("haswell", {"avx2", "fma", "bmi2", "f16c"}),
)


def cpu_target(mcpu: str = "", mattr: str = "", mtriple: str = "", lanes: int = 0) -> tvm.target.Target:
    """The target for the CPU; without arguments, for this machine's.

    ``lanes`` is the number of float32 in a vector register; 0 finds it (:func:`.register_lanes`).
    """
    if not mcpu and not mtriple:
        mcpu = host_processor()
    plain = _join("llvm", mtriple=mtriple, mcpu=mcpu, mattr=mattr)
    lanes = lanes or register_lanes(plain)
    keys = f"{CPU_KEY},{KEY},v{lanes}," + ("arm_cpu,cpu" if _is_arm(mtriple) else "cpu")
    return tvm.target.Target(f"{plain} -keys={keys}")


def gpu_target(host: tvm.target.Target | None = None, gpu: Gpu | None = None, image_side: int = 0) -> tvm.target.Target:
    """The target for the OpenCL device ``gpu``, whose host code is ``host``'s (default: :func:`cpu_target`).

    ``gpu`` is by default a CPU with ``host``'s vectors that plays one.  ``image_side`` is the most pixels an image may be
    wide and high (0: unknown).
    """
    host = host or cpu_target()
    gpu = gpu or Gpu(lanes=vector_lanes(host))
    text = _join(
        "opencl",
        keys=f"{GPU_KEY},{KEY},v{gpu.lanes},{gpu.kind},u{gpu.units},opencl,gpu",
        max_num_threads=gpu.max_group,
        thread_warp_size=gpu.warp,
        max_shared_memory_per_block=gpu.local_memory,
        texture_spatial_limit=image_side,
    )
    return tvm.target.Target(text, host=host)


# A kernel's schedule asks dozens of times, and each look at a target crosses into C++: 4 % of the time to compile it.  TVM makes
# a target anew for each kernel, so only the last few are remembered.
_remembered = functools.lru_cache(maxsize=8)


@_remembered
def gpu_of(target: tvm.target.Target) -> Gpu:
    """What ``target``'s kernels know of their GPU; a GPU's defaults for a target that is none of ours."""
    lanes, kind = vector_lanes(target), kind_in(target.keys, vector_lanes(target))
    if not kind:
        return Gpu(lanes=lanes)
    local = int(target.attrs.get("max_shared_memory_per_block", 0)) if kind in LOCAL_KINDS else 0
    warp = int(target.attrs.get("thread_warp_size", 0))
    return Gpu(kind, lanes, warp, _number_key(target, "u"), int(target.max_num_threads), local).filled()


@_remembered
def vector_lanes(target: tvm.target.Target) -> int:
    """The ``v<lanes>`` key of a target of ours; 1 for another target."""
    return _number_key(target, "v") or 1


def dot_on(dtype: str, target: tvm.target.Target | None = None) -> Dot:
    """The instruction for integers of ``dtype`` on ``target``, by default the current one."""
    target = target or tvm.target.Target.current()
    if is_gpu(target) and gpu_of(target).kind != "played":
        return GPU_DOT
    cpu = target.host if is_gpu(target) and target.host else target
    mattr = ",".join(str(word) for word in cpu.attrs.get("mattr", ()))
    text = _join("llvm", mcpu=cpu.attrs.get("mcpu", ""), mattr=mattr)
    return dot_of(text, "arm_cpu" in cpu.keys, vector_lanes(cpu), dtype)


def _number_key(target: tvm.target.Target, letter: str) -> int:
    return next((int(key[1:]) for key in target.keys if key[:1] == letter and key[1:].isdigit()), 0)


def group_size(target: tvm.target.Target) -> int:
    """Work-items in a group of a kernel that shares nothing within it: 1 where a CPU plays the GPU, and on a CPU."""
    return gpu_of(target).group if is_gpu(target) else 1


@_remembered
def is_gpu(target: tvm.target.Target) -> bool:
    return "gpu" in target.keys


def has_local_memory(target: tvm.target.Target) -> bool:
    """Whether convolutions and products of ``target`` share what they read through local memory."""
    return is_gpu(target) and gpu_of(target).kind == "local"


def is_phone(target: tvm.target.Target) -> bool:
    """Whether it is a phone's GPU, and not a CPU that plays one."""
    return is_gpu(target) and gpu_of(target).kind in PHONES


def with_images(gpu: tvm.target.Target) -> tvm.target.Target:
    """``gpu``, whose kernels then read weights from images (:mod:`.image`)."""
    return tvm.target.Target({**gpu.export(), "keys": [*gpu.keys, IMAGES]}, host=gpu.host)


def image_side(target: tvm.target.Target) -> int:
    """The longest side, in pixels, of an image of weights for ``target``; 0 where kernels read buffers."""
    return int(target.attrs["texture_spatial_limit"]) if IMAGES in target.keys else 0


def processor_of(target: tvm.target.Target) -> str:
    """``gpu`` or ``cpu``."""
    return "gpu" if is_gpu(target) else "cpu"


def host_processor() -> str:
    """LLVM's name of this machine's processor; empty for a generic one."""
    name = str(tvm.target.codegen.llvm_get_system_cpu())
    if name not in ("", "generic", "x86-64"):
        return name
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return ""
    return next((name for name, needed in _KNOWN if needed <= words), "")


def _is_arm(mtriple: str) -> bool:
    machine = mtriple.split("-")[0] if mtriple else platform.machine()
    return machine in ("aarch64", "arm64")


def _join(kind: str, **options: object) -> str:
    parts: Iterable[str] = (f"-{name}={value}" for name, value in options.items() if value)
    return " ".join((kind, *parts))
