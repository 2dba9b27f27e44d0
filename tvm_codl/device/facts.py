"""The facts of a :class:`DeviceProfile`, asked from the machine that this process runs on."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
from pathlib import Path
from typing import Literal

from tvm_codl.device.cores import CPU_CORES, GPU_CORES, named
from tvm_codl.device.cpu import caches, clusters
from tvm_codl.device.profile import DeviceProfile

# Constants of OpenCL's cl.h.
DEVICE_TYPE_CPU, DEVICE_TYPE_GPU, DEVICE_TYPE_ACCELERATOR = 2, 4, 8
TYPE, COMPUTE_UNITS, WORK_GROUP, LOCAL_MEMORY = 0x1000, 0x1002, 0x1004, 0x1023
NAME, VERSION, EXTENSIONS, UNIFIED = 0x102B, 0x102F, 0x1030, 0x1035
VECTOR_WIDTH, CLOCK, LARGEST_BUFFER, CACHE, MEMORY = 0x100A, 0x100C, 0x1010, 0x101E, 0x101F
IMAGES, IMAGE_WIDTH, IMAGE_HEIGHT = 0x1016, 0x1011, 0x1012
DEVICE_QUEUE_SIZE, DEVICE_QUEUES, DEVICE_EVENTS, SVM = 0x1050, 0x1051, 0x1052, 0x1053
SVM_FINE_GRAINED = 2
#: OpenCL 3.0's CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, NVIDIA's warp, AMD's wavefront.
WAVES = (0x1067, 0x4003, 0x4043)
KERNEL_WAVE = 0x11B3  # CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE
#: Takes a buffer, as kernels do; its size of wave is that of any simple kernel.
SOURCE = b"__kernel void scale(__global float* x) { x[get_global_id(0)] *= 2.0f; }"


class ClDevice:
    """The OpenCL device that TVM's runtime picks: the first GPU of the first platform that has one, else the first CPU.

    Raises :class:`OSError` where there is no OpenCL library or device.
    """

    def __init__(self) -> None:
        library = os.environ.get("CODL_OPENCL_LIBRARY") or ctypes.util.find_library("OpenCL")
        if not library:
            raise OSError("no OpenCL library is named or installed")
        self.cl = ctypes.CDLL(library)
        handle = self._first(DEVICE_TYPE_GPU) or self._first(DEVICE_TYPE_CPU) or self._first(DEVICE_TYPE_ACCELERATOR)
        if handle is None:
            raise OSError(f"{library} has no device")
        self.handle = handle

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
        """0 for what the device does not know."""
        value = ctypes.c_uint64(0)  # OpenCL writes 4 or 8 bytes; little endian, either reads right
        known = self.cl.clGetDeviceInfo(self.handle, what, ctypes.c_size_t(8), ctypes.byref(value), None) == 0
        return int(value.value) if known else 0

    def wave(self) -> int:
        """Work-items that run in step: what the device says, else what it says of a small kernel; 0 if nothing."""
        return next(filter(None, map(self.number, WAVES)), 0) or self._kernel_wave()

    def _kernel_wave(self) -> int:
        cl, handle, error = self.cl, ctypes.c_void_p, ctypes.c_int()
        for name in ("clCreateContext", "clCreateProgramWithSource", "clCreateKernel"):
            getattr(cl, name).restype = handle
        context = handle(cl.clCreateContext(None, 1, ctypes.byref(self.handle), None, None, ctypes.byref(error)))
        if not context:
            return 0
        source, value, program, kernel = ctypes.c_char_p(SOURCE), ctypes.c_size_t(), handle(), handle()
        try:
            made = cl.clCreateProgramWithSource(context, 1, ctypes.byref(source), None, ctypes.byref(error))
            program = handle(made)
            if not program or cl.clBuildProgram(program, 1, ctypes.byref(self.handle), None, None, None) != 0:
                return 0
            kernel = handle(cl.clCreateKernel(program, b"scale", ctypes.byref(error)))
            ask, size = cl.clGetKernelWorkGroupInfo, ctypes.c_size_t(ctypes.sizeof(value))
            known = kernel and ask(kernel, self.handle, KERNEL_WAVE, size, ctypes.byref(value), None) == 0
            return int(value.value) if known else 0
        finally:
            for release, made_of in ((cl.clReleaseKernel, kernel), (cl.clReleaseProgram, program)):
                if made_of:
                    release(made_of)
            cl.clReleaseContext(context)

    def memory_kind(self) -> Literal["unified", "svm", "discrete"]:
        """How both processors see a buffer (:class:`DeviceProfile`)."""
        if not self.number(UNIFIED):
            return "discrete"
        return "svm" if self.number(SVM) & SVM_FINE_GRAINED else "unified"


def profile() -> DeviceProfile:
    """This machine as a phone.  Starts OpenCL, so call it where OpenCL may be used."""
    import tvm

    from tvm_codl.runtime import compile as native

    cores = named(CPU_CORES) or tuple(sorted(os.sched_getaffinity(0)))
    # TVM first: the plugin gives the driver's threads the GPU's cores while it starts, and whoever asks first starts it.
    _ = tvm.device("opencl", 0).exist
    device = ClDevice()
    on_cpu, images = device.number(TYPE) & DEVICE_TYPE_CPU != 0, device.number(IMAGES) != 0
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
        clusters=clusters(),
        caches=caches(),
        global_mem_cache_size=device.number(CACHE),
        kernel_wave_size=device.wave(),
        gpu_mhz=device.number(CLOCK),
        global_memory=device.number(MEMORY),
        largest_buffer=device.number(LARGEST_BUFFER),
        vector_width=device.number(VECTOR_WIDTH),
        memory_kind=device.memory_kind(),
        images=images,
        image2d=(device.number(IMAGE_WIDTH), device.number(IMAGE_HEIGHT)) if images else (0, 0),
        device_queues=device.number(DEVICE_QUEUES),
        device_queue_size=device.number(DEVICE_QUEUE_SIZE),
        device_events=device.number(DEVICE_EVENTS),
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
