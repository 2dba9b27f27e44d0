from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import tvm

from tests.kernels.test_version import PHONE
from tvm_codl.kernels import toolchain
from tvm_codl.kernels.kernel_id import kernel_id
from tvm_codl.sources import tvm_version


def test_the_version_is_tvms() -> None:
    assert tvm_version() == tvm.__version__


def test_the_id_is_the_toolchains_and_is_worked_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path))
    tuned = tmp_path / "tuned.log"
    tuned.write_text("\n")
    wanted = toolchain.toolchain(PHONE).kernel_id
    assert kernel_id(PHONE) == wanted != kernel_id(PHONE, tuned)
    monkeypatch.setattr(toolchain, "toolchain", None)
    assert kernel_id(PHONE) == wanted
    tuned.write_text("\n\n")
    with pytest.raises(TypeError):
        kernel_id(PHONE, tuned)


def test_the_id_of_a_played_gpu_does_not_change_with_the_memory_that_is_free() -> None:
    """PoCL offers images of 16384 pixels where it finds much memory as it starts, and of 8192 where it finds less."""

    def id_of(side: int, *gpu_cores: int) -> str:
        phone = msgspec.structs.replace(PHONE, image2d=(side, side), gpu_cores=gpu_cores)
        return toolchain.toolchain(phone).kernel_id

    assert id_of(8192, 1) == id_of(16384, 1)
    assert id_of(8192) != id_of(16384)
