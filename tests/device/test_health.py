from __future__ import annotations

from pathlib import Path

import pytest

from tvm_codl.device import health
from tvm_codl.device.health import Check, run_checks
from tvm_codl.errors import DeviceError, UserError


def by_name() -> dict[str, Check]:
    return {check.name: check for check in run_checks()}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the two checks that build and probe."""
    monkeypatch.setattr(health, "_plugin", lambda: "built")
    monkeypatch.setattr(health, "_opencl", lambda: "found")


def test_this_machine_is_well() -> None:
    assert all(check.ok for name, check in by_name().items() if name != "cores")


def test_missing_compiler_and_unwritable_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("TVM_CODL_CACHE", str(file / "below"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found = by_name()
    assert not found["C++ compiler"].ok
    assert "apt-get install g++" in found["C++ compiler"].remedy
    assert not found["cache folder"].ok
    assert "TVM_CODL_CACHE" in found["cache folder"].remedy


def test_compiler_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    check = by_name()["C++ compiler"]
    assert not check.ok and "false" in check.found


def test_no_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health.importlib.util, "find_spec", lambda name: None)
    check = by_name()["TVM with Relay"]
    assert not check.ok
    assert check.remedy.startswith("pip install xtc-tvm-python-bindings")


def test_tvm_without_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tvm.relay", None)
    import tvm

    monkeypatch.delattr(tvm, "relay")
    check = by_name()["TVM with Relay"]
    assert not check.ok
    assert "has no Relay" in check.found


def test_errors_of_ours_bring_their_remedy_and_others_do_not_end_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_device() -> str:
        raise DeviceError("no OpenCL", "nothing installed", "pip install x")

    def no_plugin() -> str:
        raise UserError("does not build", "error: x", "doctor")

    monkeypatch.setattr(health, "_opencl", no_device)
    monkeypatch.setattr(health, "_plugin", no_plugin)
    monkeypatch.setattr(health, "_cores", lambda: 1 // 0)
    found = by_name()
    assert (found["OpenCL"].remedy, found["OpenCL"].device) == ("pip install x", True)
    assert found["native plugin"].found == "does not build error: x"
    assert "ZeroDivisionError" in found["cores"].found
