"""The plugin serves sessions whichever compiler built it, and however that links its C++ library."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tvm
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tests.runtime.partitions import convolutions
from tvm_codl.build.library import build
from tvm_codl.device.connect import connect
from tvm_codl.errors import DeviceError
from tvm_codl.measure.worker import open_remote
from tvm_codl.runtime import compile as native
from tvm_codl.runtime import plugin

STATIC = "-static-libstdc++ -static-libgcc"


def exported(library: Path) -> list[str]:
    with library.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        return [s.name for s in symbols.iter_symbols() if s.name and s["st_shndx"] != "SHN_UNDEF"]


def needed(library: Path) -> set[str]:
    with library.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        return {tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}


def test_the_plugin_keeps_its_symbols_and_takes_libtvms_cxx_library() -> None:
    assert exported(plugin.path()) == []
    assert {path.name.partition(".so")[0] for path in native.cxx_runtime()} == {"libstdc++", "libgcc_s"}
    assert {"libstdc++.so.6", "libgcc_s.so.1"} <= needed(plugin.path())


@pytest.mark.slow
@pytest.mark.parametrize("linked", ["", STATIC], ids=["shared", "static"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_a_session_runs(
    opencl: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, linked: str
) -> None:
    """Text with numbers in it, and an error, come from the plugin through libtvm to the client."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}: docker/install/clang.sh installs clang++")
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("LDFLAGS", linked)
    monkeypatch.setattr(native, "build_dir", lambda sanitize="": tmp_path / "native")
    built = native.compile_native()
    assert exported(built) == []
    assert {"libstdc++.so.6", "libgcc_s.so.1"} <= needed(built)

    monkeypatch.setenv("TVM_CODL_PLUGIN", str(built))
    split, _ = convolutions(extent=6, channels=4, row=3, channel=4)
    library = build(split, tvm.target.Target("llvm"), tvm.target.Target("opencl")).export(tmp_path / "model.so")
    with connect() as phone:
        module = open_remote(phone, library)
        assert np.isfinite(module.run({"x": np.zeros((1, 6, 6, 4), "float32")})[0]).all()
        assert all(ms > 0 for ms in module.time_region(0, 3, 0.1) + module.benchmark(2, 2))
        assert module.timeline()
        with pytest.raises(DeviceError):  # thrown in the plugin, caught in libtvm
            module.time_region_busy(0, 0)
        assert phone.opened == 1 and phone.alive()
