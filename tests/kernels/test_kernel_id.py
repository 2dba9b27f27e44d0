from __future__ import annotations

from pathlib import Path

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
