"""Which loops suit which GPU, by what its driver says of it."""

from __future__ import annotations

import pytest

from tvm_codl.kernels.gpu import KINDS, Gpu, kind_in, kind_of, usual

DRIVERS = {
    "played": [
        {"gpu_name": "cpu-skylake-avx512-Intel(R) Xeon(R)", "gpu_version": "OpenCL 3.0 PoCL HSTR: cpu-x86_64"},
        {"gpu_name": "pthread-haswell", "gpu_version": "OpenCL 1.2 pocl", "gpu_cores": [1]},
    ],
    "bifrost": [
        {"gpu_name": "Mali-G76", "gpu_version": "OpenCL 2.0 v1.r16p0"},
        {"gpu_name": "Mali-G31 r0p0"},
        {"gpu_name": "Mali-T880"},
    ],
    "valhall": [{"gpu_name": "Mali-G78"}, {"gpu_name": "Mali-G710 r0p0"}, {"gpu_name": "Mali-G57 MC2"}],
    "adreno": [{"gpu_name": "QUALCOMM Adreno(TM)", "gpu_version": "OpenCL 2.0 Adreno(TM) 640"}],
    "mobile": [{"gpu_name": "PowerVR Rogue GE8320"}, {"gpu_name": ""}],
    "local": [{"gpu_name": "NVIDIA H200", "gpu_version": "OpenCL 3.0 CUDA", "unified_memory": False}],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_a_gpu_is_read_from_its_profile(kind: str) -> None:
    assert [kind_of(profile) for profile in DRIVERS[kind]] == [kind] * len(DRIVERS[kind])


def test_a_real_gpu_beside_a_cpu_with_wide_vectors_is_no_played_one() -> None:
    profile = {"gpu_name": "NVIDIA H200", "unified_memory": False, "compute_units": 132, "kernel_wave_size": 32}
    gpu = Gpu.of({**profile, "max_work_group": 1024, "local_memory": 49152}, cpu_lanes=16)
    assert (gpu.kind, gpu.lanes, gpu.warp, gpu.units, gpu.local_memory) == ("local", 4, 32, 132, 49152)
    assert gpu.group == 64


def test_malis_local_memory_is_main_memory() -> None:
    assert Gpu.of({"gpu_name": "Mali-G78", "local_memory": 32768}, cpu_lanes=4).local_memory == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_unknown_has_a_usual_value(kind: str) -> None:
    gpu = usual(kind)
    assert min(gpu.warp, gpu.units, gpu.max_group, gpu.registers, gpu.group) >= 1
    assert gpu.group == 1 if kind == "played" else gpu.group % gpu.warp == 0


def test_a_targets_keys_name_the_kind() -> None:
    assert kind_in(["codl_gpu", "codl", "v4", "adreno", "u2", "opencl", "gpu"], 4) == "adreno"
    assert kind_in(["codl_gpu", "codl", "v16", "opencl", "gpu"], 16) == "played"  # records of earlier versions
    assert kind_in(["codl_cpu", "codl", "v16", "cpu"], 16) == ""
