"""Peak: what a phone's GPU can do at most, measured on the phone."""

from __future__ import annotations

from typing import Any

import msgspec
import tvm

from tvm_codl.errors import DeviceError
from tvm_codl.runtime.error_text import last_line


class Peak(msgspec.Struct, frozen=True, omit_defaults=True):
    """The best of short runs; 0: not measured, or not there (``float16_gflops``).

    ``float32_gflops`` and ``float16_gflops`` count a multiply-add as two operations.  ``memory_gbps`` is the GPU's own
    memory, read and written; ``to_gpu_gbps`` and ``to_cpu_gbps`` are copies from and to the host's pinned memory; all in
    10^9 bytes a second.  ``launch_us`` is a kernel that does nothing, in a row of such; ``wait_us`` from enqueueing one
    until the waiting CPU goes on; ``release_us`` from releasing one that waits for the CPU until the waiting CPU goes on.
    """

    float32_gflops: float = 0.0
    float16_gflops: float = 0.0
    memory_gbps: float = 0.0
    to_gpu_gbps: float = 0.0
    to_cpu_gbps: float = 0.0
    launch_us: float = 0.0
    wait_us: float = 0.0
    release_us: float = 0.0


def measure_peak(phone: Any, device: int = 0) -> Peak | None:
    """Measures a phone's OpenCL device, in about a second; None at a phone whose runtime has no such measurement.

    ``phone`` is a :class:`~tvm_codl.device.connect.Phone`.  Raises :class:`DeviceError` where the GPU fails.
    """
    try:
        measure = phone.remote.get_function("codl.measure_peak")
    except AttributeError:
        return None
    try:
        return msgspec.json.decode(str(measure(device)), type=Peak)
    except tvm.error.TVMError as error:
        if not phone.alive():
            raise
        raise DeviceError("the GPU's peak cannot be measured", last_line(error), "tvm-codl doctor") from error
