from __future__ import annotations

import os

import msgspec
import pytest

from tvm_codl.device import cores
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.device.reference.serve import command, parse_address
from tvm_codl.errors import UsageError


@pytest.mark.parametrize(
    ("available", "cpu", "gpu"),
    [({0, 1}, (0,), (1,)), ({3}, (3,), (3,)), ({2, 5, 7}, (2,), (5, 7)), (set(range(8)), (0, 1, 2, 3), (4, 5, 6, 7))],
)
def test_halves(
    monkeypatch: pytest.MonkeyPatch, available: set[int], cpu: tuple[int, ...], gpu: tuple[int, ...]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: available)
    assert cores.split_cores() == (cpu, gpu)


def test_environment_gives_each_processor_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    monkeypatch.setattr(cores.opencl, "environment", lambda: {"CODL_OPENCL_LIBRARY": "x"})
    environment = cores.phone_environment()
    assert environment["CODL_CPU_CORES"] == "0,1,2"
    assert environment["CODL_GPU_CORES"] == "3,4,5"
    assert environment["TVM_NUM_THREADS"] == environment["POCL_MAX_PTHREAD_COUNT"] == "3"
    assert environment["TVM_BIND_THREADS"] == "0"
    assert environment["CODL_OPENCL_LIBRARY"] == "x"
    monkeypatch.setenv("CODL_CPU_CORES", environment["CODL_CPU_CORES"])
    assert cores.cores_from_env("CODL_CPU_CORES") == (0, 1, 2)
    assert cores.cores_from_env("CODL_NOT_SET") == ()


def test_profile_is_json_both_ways() -> None:
    profile = DeviceProfile("phone", "aarch64", "A78", (0, 1), "llvm", "Mali", "opencl", unified_memory=False)
    assert DeviceProfile.from_json(profile.to_json()) == profile
    assert msgspec.json.decode(profile.to_json())["cpu_cores"] == [0, 1]


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:port", "host:0", "host:65536", "1.2.3.4:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


def test_addresses_and_command_lines() -> None:
    assert parse_address("127.0.0.1:9190") == ("127.0.0.1", 9190)
    assert parse_address("[::1]:9190") == ("::1", 9190)
    assert command(port=0, key="k", tracker="", parent=None)[3:] == ["--port", "0", "--key", "k"]
