"""Does this OpenCL build and run a kernel?  Run as ``python -m tvm_codl.runtime.opencl_probe LIBRARY`` in a process of its
own, since a broken driver may abort the process that asks.  Prints one JSON line."""

from __future__ import annotations

import ctypes
import json
import sys

# Wide vectors through library functions: code for one processor and a library for another disagree about those.
SOURCE = b"""__kernel void add(__global float* x) {
  float16 v = vload16(0, x);
  v = fmax(fma(v, (float16)(2.0f), -v), (float16)(-1.0f)) + exp((float16)(0.0f) * v);
  vstore16(v, 0, x);
}"""
CPU_OR_GPU = 0x2 | 0x4
DEVICE_NAME, DEVICE_VERSION, BUILD_LOG = 0x102B, 0x102F, 0x1183


def probe(library: str) -> dict[str, object]:
    """Builds and runs one kernel on the first device.  ``ok`` says whether the sum came out right."""
    cl = ctypes.CDLL(library)
    for name in ("clCreateContext", "clCreateProgramWithSource", "clCreateKernel", "clCreateCommandQueue",
                 "clCreateBuffer"):  # fmt: skip
        getattr(cl, name).restype = ctypes.c_void_p
    n, error = ctypes.c_uint(), ctypes.c_int()
    platforms = (ctypes.c_void_p * 8)()
    if cl.clGetPlatformIDs(8, platforms, ctypes.byref(n)) != 0 or n.value == 0:
        return {"ok": False, "why": "the OpenCL library knows no platform"}
    device = ctypes.c_void_p()
    for platform in platforms[: n.value]:
        if cl.clGetDeviceIDs(ctypes.c_void_p(platform), ctypes.c_ulong(CPU_OR_GPU), 1, ctypes.byref(device), None) == 0:
            break
    else:
        return {"ok": False, "why": "no platform has a device"}

    def text(call: object, *args: object) -> str:
        buffer = ctypes.create_string_buffer(8192)
        call(*args, ctypes.c_size_t(8192), buffer, None)  # type: ignore[operator]
        return buffer.value.decode(errors="replace").strip()

    name = text(cl.clGetDeviceInfo, device, DEVICE_NAME)
    version = text(cl.clGetDeviceInfo, device, DEVICE_VERSION)
    about = {"device": name, "version": version}
    context = ctypes.c_void_p(cl.clCreateContext(None, 1, ctypes.byref(device), None, None, ctypes.byref(error)))
    source = ctypes.c_char_p(SOURCE)
    program = ctypes.c_void_p(cl.clCreateProgramWithSource(context, 1, ctypes.byref(source), None, ctypes.byref(error)))
    if cl.clBuildProgram(program, 1, ctypes.byref(device), None, None, None) != 0:
        return {"ok": False, "why": text(cl.clGetProgramBuildInfo, program, device, BUILD_LOG), **about}
    kernel = ctypes.c_void_p(cl.clCreateKernel(program, b"add", ctypes.byref(error)))
    queue = ctypes.c_void_p(cl.clCreateCommandQueue(context, device, ctypes.c_ulong(0), ctypes.byref(error)))
    data = (ctypes.c_float * 16)(*range(16))
    size = ctypes.sizeof(data)
    memory = ctypes.c_void_p(cl.clCreateBuffer(context, ctypes.c_ulong(1 | 32), ctypes.c_size_t(size), data, None))
    cl.clSetKernelArg(kernel, 0, ctypes.c_size_t(8), ctypes.byref(memory))
    items = ctypes.c_size_t(1)
    launched = cl.clEnqueueNDRangeKernel(queue, kernel, 1, None, ctypes.byref(items), None, 0, None, None)
    cl.clEnqueueReadBuffer(queue, memory, 1, ctypes.c_size_t(0), ctypes.c_size_t(size), data, 0, None, None)
    right = launched == 0 and list(data) == [i + 1.0 for i in range(16)]
    return {"ok": right, "why": "" if right else f"the kernel gave {list(data)[:4]}", **about}


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1])), flush=True)
