"""The facts of a :class:`DeviceProfile` of this machine."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
from typing import Literal

from tvm_codl.device.cores import CPU_CORES, GPU_CORES, cores_from_env
from tvm_codl.device.cpu import CPUINFO, caches, clusters, read_text
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.runtime.opencl_device import ACCELERATOR, CPU, GPU, NAME, VERSION, OpenCLDevice

# Constants of OpenCL's cl.h.
TYPE, COMPUTE_UNITS, WORK_GROUP, LOCAL_MEMORY = 0x1000, 0x1002, 0x1004, 0x1023
EXTENSIONS, UNIFIED = 0x1030, 0x1035
VECTOR_WIDTH, CLOCK, LARGEST_BUFFER, CACHE, MEMORY = 0x100A, 0x100C, 0x1010, 0x101E, 0x101F
IMAGES, IMAGE_WIDTH, IMAGE_HEIGHT = 0x1016, 0x1011, 0x1012
DEVICE_QUEUE_SIZE, DEVICE_QUEUES, DEVICE_EVENTS, SVM = 0x1050, 0x1051, 0x1052, 0x1053
SVM_FINE_GRAINED = 2
#: OpenCL 3.0's CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, NVIDIA's warp, AMD's wavefront.
WAVES = (0x1067, 0x4003, 0x4043)
KERNEL_WAVE = 0x11B3  # CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE
#: Takes a buffer, as kernels do; any simple kernel has its wave size.
SOURCE = b"__kernel void scale(__global float* x) { x[get_global_id(0)] *= 2.0f; }"


class ClDevice(OpenCLDevice):
    """The OpenCL device that TVM's runtime picks: the first GPU of the first platform that has one, else the first CPU.

    Raises :class:`OSError` where there is no OpenCL library or device.
    """

    def __init__(self) -> None:
        library = os.environ.get("CODL_OPENCL_LIBRARY") or ctypes.util.find_library("OpenCL")
        if not library:
            raise OSError("no OpenCL library is named or installed")
        super().__init__(library, (GPU, CPU, ACCELERATOR))

    def wave(self) -> int:
        """Work-items that run in step: by the device, else by a small kernel; 0 if unknown."""
        return next(filter(None, map(self.number, WAVES)), 0) or self._kernel_wave()

    def _kernel_wave(self) -> int:
        value = ctypes.c_size_t()
        try:
            with self.kernel(SOURCE, b"scale") as (_, kernel):
                query, size = self.cl.clGetKernelWorkGroupInfo, ctypes.c_size_t(ctypes.sizeof(value))
                known = query(kernel, self.handle, KERNEL_WAVE, size, ctypes.byref(value), None) == 0
                return int(value.value) if known else 0
        except OSError:
            return 0

    def memory_kind(self) -> Literal["unified", "svm", "discrete"]:
        """How both processors access a buffer (:class:`DeviceProfile`)."""
        if not self.number(UNIFIED):
            return "discrete"
        return "svm" if self.number(SVM) & SVM_FINE_GRAINED else "unified"


def profile() -> DeviceProfile:
    """This machine as a phone.  Starts OpenCL."""
    import tvm

    from tvm_codl.runtime import compile as native

    cores = cores_from_env(CPU_CORES) or tuple(sorted(os.sched_getaffinity(0)))
    # TVM first: the first query starts the driver, and only the plugin pins its threads to the GPU's cores.
    _ = tvm.device("opencl", 0).exist
    device = ClDevice()
    on_cpu, images = device.number(TYPE) & CPU != 0, device.number(IMAGES) != 0
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
        gpu_cores=cores_from_env(GPU_CORES) if on_cpu else (),
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
    """The processor's name in /proc/cpuinfo, else its architecture."""
    names = (
        line.partition(":")[2].strip() for line in read_text(CPUINFO).splitlines() if line.startswith("model name")
    )
    return next(names, platform.machine())
