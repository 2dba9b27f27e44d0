"""Ids of what builds: which change makes records and libraries stale."""

from __future__ import annotations

import msgspec
import pytest
import tvm

from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.kernels import toolchain as targets
from tvm_codl.kernels.tiles.dots import dot_of
from tvm_codl.kernels.tiles.vectors import register_lanes

PHONE = DeviceProfile("phone", "x86_64", "a CPU", (0,), "llvm", "a GPU", "opencl", gpu_version="1", build_id="first")


def test_a_new_runtime_makes_libraries_stale_and_records_not():
    before, after = targets.toolchain(PHONE), targets.toolchain(msgspec.structs.replace(PHONE, build_id="second"))
    assert before.build_id != after.build_id
    assert before.kernel_id == after.kernel_id


def test_a_new_driver_makes_both_stale():
    before, after = targets.toolchain(PHONE), targets.toolchain(msgspec.structs.replace(PHONE, gpu_version="2"))
    assert before.build_id != after.build_id
    assert before.kernel_id != after.kernel_id


@pytest.mark.parametrize("cores", [{"cpu_cores": (0, 2)}, {"gpu_cores": (1, 2)}])
def test_other_cores_of_a_computer_that_plays_a_phone_make_records_stale(cores):
    played = msgspec.structs.replace(PHONE, gpu_cores=(1,))
    before, after = targets.toolchain(played), targets.toolchain(msgspec.structs.replace(played, **cores))
    assert before.kernel_id != after.kernel_id


def test_the_cores_that_a_phone_lends_its_server_make_no_difference():
    fewer = msgspec.structs.replace(PHONE, cpu_cores=(0, 2))
    assert targets.toolchain(PHONE).kernel_id == targets.toolchain(fewer).kernel_id


def test_tuning_records_that_cannot_be_read_are_the_users_error(tmp_path):
    with pytest.raises(UserError, match=r"cannot read tuning records from .*none\.log") as raised:
        targets.toolchain(PHONE, tmp_path / "none.log")
    assert raised.value.next == "tvm-codl tune MODEL -o FILE"


def test_vectors_go_by_the_processors_that_llvm_knows():
    names = tvm.get_global_func("target.llvm_get_cpu_archlist")(tvm.target.Target("llvm"))
    for text in ("llvm -mattr=+avx2", "llvm -mattr=+avx512f", *(f"llvm -mcpu={name}" for name in names)):
        with tvm.target.Target(text):
            has = tvm.target.codegen.llvm_cpu_has_features
            lanes = 16 if has("avx512f") else 8 if has("avx2") else 4
        assert register_lanes(text) == lanes, text


@pytest.mark.parametrize(("machine", "arm"), [("x86_64", False), ("aarch64", True)])
def test_instructions_for_integers_go_by_the_processors_that_llvm_knows(machine, arm):
    names = tvm.get_global_func("target.llvm_get_cpu_archlist")(tvm.target.Target(f"llvm -mtriple={machine}-linux-gnu"))
    features = ("+dotprod", "+i8mm", "+v8.4a", "+v8.6a", "+neon") if arm else ("+avx2", "+avxvnni", "+avx512f")
    for option in (*(f"-mcpu={name}" for name in names), *(f"-mattr={feature}" for feature in features)):
        text = f"llvm -mtriple={machine}-linux-gnu {option}"
        lanes = 4 if arm else register_lanes(text)
        with tvm.target.Target(text):
            has = tvm.target.codegen.llvm_cpu_has_features
            if arm:
                expected = ["usdot", "sdot"] if has("i8mm") else ["sdot"] * 2 if has("dotprod") else ["multiply"] * 2
            elif has("avx512vnni") if lanes == 16 else has("avxvnni"):
                expected = ["vpdpbusd"] * 2
            else:
                expected = ["multiply" if lanes == 16 and not has("avx512bw") else "pmaddwd"] * 2
        assert [dot_of(text, arm, lanes, dtype).name for dtype in ("uint8", "int8")] == expected, text
