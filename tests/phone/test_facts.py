"""The profile of the reference phone says what OpenCL and Linux say."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tvm_codl.device.connect import connect
from tvm_codl.device.cores import phone_environment

#: Asks through pyopencl, not through our own calls.
ASK = """
import json, pyopencl
device = next(d for p in pyopencl.get_platforms() for d in p.get_devices())
context = pyopencl.Context([device])
kernel = pyopencl.Program(context, "__kernel void f(__global float* x) { x[get_global_id(0)] = 1; }").build().f
wave = kernel.get_work_group_info(pyopencl.kernel_work_group_info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE, device)
print(json.dumps({
    "compute_units": device.max_compute_units,
    "max_work_group": device.max_work_group_size,
    "local_memory": device.local_mem_size,
    "global_mem_cache_size": device.global_mem_cache_size,
    "global_memory": device.global_mem_size,
    "largest_buffer": device.max_mem_alloc_size,
    "vector_width": device.preferred_vector_width_float,
    "images": bool(device.image_support),
    "image2d": [device.image2d_max_width, device.image2d_max_height],
    "unified_memory": bool(device.host_unified_memory),
    "kernel_wave_size": wave,
}))
"""
WAVE = """
from tvm_codl.device.facts import ClDevice
device = ClDevice()
print(device.wave(), device._kernel_wave(), device.number(0xFFFF))
"""


def asked(script: str) -> str:
    environment = {**os.environ, **phone_environment()}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


def test_the_reference_phones_facts_are_opencls() -> None:
    pytest.importorskip("pyopencl")
    with connect() as phone:
        profile = phone.profile
    told = json.loads(asked(ASK))
    assert json.loads(json.dumps({name: getattr(profile, name) for name in told})) == told
    assert profile.memory_kind in (("unified", "svm") if profile.unified_memory else ("discrete",))
    assert set(profile.cpu_cores) <= {core for cluster in profile.clusters for core in cluster.cores}


def test_the_wave_is_known_with_and_without_a_query_for_it() -> None:
    wave, kernel_wave, unknown = map(int, asked(WAVE).split())
    assert wave > 0 and kernel_wave > 0
    assert unknown == 0
