"""The facts of a :class:`DeviceProfile`, asked from the machine that this process runs on."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
from pathlib import Path

from tvm_codl.device.cores import CPU_CORES, GPU_CORES, named
from tvm_codl.device.profile import DeviceProfile

# Constants of OpenCL's cl.h.
DEVICE_TYPE_CPU, DEVICE_TYPE_GPU, DEVICE_TYPE_ACCELERATOR = 2, 4, 8
TYPE, COMPUTE_UNITS, WORK_GROUP, LOCAL_MEMORY = 0x1000, 0x1002, 0x1004, 0x1023
NAME, VERSION, EXTENSIONS, UNIFIED = 0x102B, 0x102F, 0x1030, 0x1035


class ClDevice:
    """The OpenCL device that TVM's runtime picks: the first GPU of the first platform that has one, else the first CPU.

    Raises :class:`OSError` where there is no OpenCL library or device.
    """

    def __init__(self) -> None:
        library = os.environ.get("CODL_OPENCL_LIBRARY") or ctypes.util.find_library("OpenCL")
        if not library:
            raise OSError("no OpenCL library is named or installed")
        self.cl = ctypes.CDLL(library)
        self.handle = (
            self._first(DEVICE_TYPE_GPU) or self._first(DEVICE_TYPE_CPU) or self._first(DEVICE_TYPE_ACCELERATOR)
        )
        if self.handle is None:
            raise OSError(f"{library} has no device")

    def _first(self, kind: int) -> ctypes.c_void_p | None:
        count, platforms, device = ctypes.c_uint(), (ctypes.c_void_p * 16)(), ctypes.c_void_p()
        if self.cl.clGetPlatformIDs(16, platforms, ctypes.byref(count)) != 0:
            return None
        for known in platforms[: count.value]:
            call = self.cl.clGetDeviceIDs
            if call(ctypes.c_void_p(known), ctypes.c_ulong(kind), 1, ctypes.byref(device), None) == 0:
                return device
        return None

    def text(self, what: int) -> str:
        size = ctypes.c_size_t()
        self.cl.clGetDeviceInfo(self.handle, what, ctypes.c_size_t(0), None, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value + 1)
        self.cl.clGetDeviceInfo(self.handle, what, size, buffer, None)
        return buffer.value.decode(errors="replace").strip()

    def number(self, what: int) -> int:
        value = ctypes.c_uint64(0)  # OpenCL writes 4 or 8 bytes; little endian, either reads right
        self.cl.clGetDeviceInfo(self.handle, what, ctypes.c_size_t(8), ctypes.byref(value), None)
        return int(value.value)


def profile() -> DeviceProfile:
    """This machine as a phone.  Starts OpenCL, so call it where OpenCL may be used."""
    import tvm

    from tvm_codl.runtime import compile as native

    cores = named(CPU_CORES) or tuple(sorted(os.sched_getaffinity(0)))
    # TVM first: the plugin gives the driver's threads the GPU's cores while it starts, and whoever asks first starts it.
    _ = tvm.device("opencl", 0).exist
    device = ClDevice()
    on_cpu = device.number(TYPE) & DEVICE_TYPE_CPU != 0
    processor = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    return DeviceProfile(
        name=os.environ.get("CODL_PHONE_NAME") or f"reference phone ({cpu_name()})",
        arch=platform.machine(),
        cpu_name=cpu_name(),
        cpu_cores=cores,
        cpu_target=f"llvm -mcpu={processor()}" if processor else "llvm",
        gpu_name=device.text(NAME),
        gpu_target="opencl -device=mali",
        gpu_version=device.text(VERSION),
        gpu_cores=named(GPU_CORES) if on_cpu else (),
        compute_units=device.number(COMPUTE_UNITS),
        max_work_group=device.number(WORK_GROUP),
        local_memory=device.number(LOCAL_MEMORY),
        unified_memory=device.number(UNIFIED) != 0,
        float16="cl_khr_fp16" in device.text(EXTENSIONS).split(),
        build_id=native.source_key(),
    )


def cpu_name() -> str:
    """The processor's name as Linux knows it, else its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()
