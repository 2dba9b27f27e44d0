"""A device of an OpenCL library, through ctypes; a process may use several libraries.

``python -m tvm_codl.runtime.opencl_device LIBRARY`` prints as a line of JSON whether the library builds and runs a kernel.  In
a process of its own: a broken driver may abort it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import resource
import sys
from collections.abc import Iterator, Sequence
from typing import Any

# Constants of OpenCL's cl.h.
CPU, GPU, ACCELERATOR = 2, 4, 8
NAME, VERSION = 0x102B, 0x102F
BUILD_LOG = 0x1183
READ_WRITE_COPY = 1 | 32
#: Seconds of a core.  LLVM may not end for a processor that it does not know; the probe's kernel takes less than one.
PROBE_CORE_S = 10
#: Uses wide vectors through library functions: a compiler and a kernel library for different processors disagree on those.
PROBE = b"""__kernel void add(__global float* x) {
  float16 v = vload16(0, x);
  v = fmax(fma(v, (float16)(2.0f), -v), (float16)(-1.0f)) + exp((float16)(0.0f) * v);
  vstore16(v, 0, x);
}"""
_CREATORS = ["clCreateContext", "clCreateProgramWithSource", "clCreateKernel", "clCreateCommandQueue", "clCreateBuffer"]
_Handle = ctypes.c_void_p


class OpenCLDevice:
    """The first device of the first of ``kinds`` (sums of CPU, GPU and ACCELERATOR) that a platform of the library has.

    Raises :class:`OSError` where the library does not load or has no such device.
    """

    def __init__(self, library: str, kinds: Sequence[int]) -> None:
        self.cl = ctypes.CDLL(library)
        for name in _CREATORS:
            getattr(self.cl, name).restype = _Handle
        count, platforms, self.handle = ctypes.c_uint(), (_Handle * 16)(), _Handle()
        if self.cl.clGetPlatformIDs(16, platforms, ctypes.byref(count)) != 0:
            count.value = 0
        for kind in kinds:
            for platform in platforms[: count.value]:
                place = ctypes.byref(self.handle)
                if self.cl.clGetDeviceIDs(_Handle(platform), ctypes.c_ulong(kind), 1, place, None) == 0:
                    return
        raise OSError(f"{library} has no device ({count.value} platforms)")

    def text(self, what: int) -> str:
        return _read_text(self.cl.clGetDeviceInfo, self.handle, what)

    def number(self, what: int) -> int:
        """0 for what the device does not know."""
        value = ctypes.c_uint64(0)  # OpenCL writes 4 or 8 bytes; little endian, either reads right
        known = self.cl.clGetDeviceInfo(self.handle, what, ctypes.c_size_t(8), ctypes.byref(value), None) == 0
        return int(value.value) if known else 0

    @contextlib.contextmanager
    def kernel(self, source: bytes, name: bytes) -> Iterator[tuple[Any, Any]]:
        """A context and a kernel built in it.  Raises :class:`OSError` with the compiler's words where it does not build."""
        cl, device, error = self.cl, ctypes.byref(self.handle), ctypes.byref(ctypes.c_int())
        context = _Handle(cl.clCreateContext(None, 1, device, None, None, error))
        if not context:
            raise OSError("the device makes no context")
        program, kernel = _Handle(), _Handle()
        try:
            text = ctypes.byref(ctypes.c_char_p(source))
            program = _Handle(cl.clCreateProgramWithSource(context, 1, text, None, error))
            if not program or cl.clBuildProgram(program, 1, device, None, None, None) != 0:
                raise OSError(_read_text(cl.clGetProgramBuildInfo, program, self.handle, BUILD_LOG) or "no build log")
            kernel = _Handle(cl.clCreateKernel(program, name, error))
            if not kernel:
                raise OSError(f"no kernel {name!r}")
            yield context, kernel
        finally:
            for release, handle in ((cl.clReleaseKernel, kernel), (cl.clReleaseProgram, program)):
                if handle:
                    release(handle)
            cl.clReleaseContext(context)


def _read_text(query: Any, *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(1 << 16)
    query(*arguments, ctypes.c_size_t(len(buffer)), buffer, None)
    return buffer.value.decode(errors="replace").strip()


def probe(library: str) -> dict[str, object]:
    """Builds and runs one kernel.  ``ok`` says whether its result is right, ``why`` what went wrong."""
    about: dict[str, object] = {}
    try:
        device = OpenCLDevice(library, (CPU | GPU,))
        about = {"device": device.text(NAME), "version": device.text(VERSION)}
        with device.kernel(PROBE, b"add") as (context, kernel):
            result = _run_probe(device, context, kernel)
    except OSError as error:
        return {"ok": False, "why": str(error), **about}
    right = result == [i + 1.0 for i in range(16)]
    return {"ok": right, "why": "" if right else f"the kernel gave {result[:4]}", **about}


def _run_probe(device: OpenCLDevice, context: Any, kernel: Any) -> list[float]:
    cl, error = device.cl, ctypes.byref(ctypes.c_int())
    data, items = (ctypes.c_float * 16)(*range(16)), ctypes.c_size_t(1)
    size = ctypes.c_size_t(ctypes.sizeof(data))
    queue = _Handle(cl.clCreateCommandQueue(context, device.handle, ctypes.c_ulong(0), error))
    memory = _Handle(cl.clCreateBuffer(context, ctypes.c_ulong(READ_WRITE_COPY), size, data, error))
    cl.clSetKernelArg(kernel, 0, ctypes.c_size_t(8), ctypes.byref(memory))
    if cl.clEnqueueNDRangeKernel(queue, kernel, 1, None, ctypes.byref(items), None, 0, None, None) != 0:
        raise OSError("the kernel cannot be launched")
    cl.clEnqueueReadBuffer(queue, memory, 1, ctypes.c_size_t(0), size, data, 0, None, None)
    return list(data)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (PROBE_CORE_S, PROBE_CORE_S))
    print(json.dumps(probe(sys.argv[1])), flush=True)
