"""The private copy of PoCL names a processor that its compiler and its kernel library agree about, and its header is short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_codl.runtime import pocl

AVX512 = set(pocl.NAMES[0][1]) | pocl.NAMES[1][1]
LIBRARY = b"\x7fELF....__generic\x00 generic\x00...alderlake\x00znver3\x00rocketlake\x00..."


def _patched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: set[str], content: bytes = LIBRARY, patched: bool = True
) -> Path:
    library = tmp_path / "site" / "pyopencl" / ".libs" / "libpocl.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(content)
    header = tmp_path / "site" / "pocl_binary_distribution" / ".libs" / "share" / "opencl-c.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text("float exp(float);\nfloat sincos(float, float *);\n")
    (header.parent / "kernel.bc").write_bytes(b"BC")
    monkeypatch.setattr(pocl, "host_features", lambda: features)
    return pocl.own_copy(library, tmp_path / "cache", patched)


def test_a_processor_with_avx512_is_never_taken_for_zen_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = _patched(tmp_path, monkeypatch, AVX512).read_bytes()
    assert len(content) == len(LIBRARY)
    assert b"znver3" not in content and content.count(b"skx\x00") == 2


def test_without_avx512_only_the_fallback_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = _patched(tmp_path, monkeypatch, pocl.NAMES[1][1]).read_bytes()
    assert b"\x00znver3\x00" in content and b"\x00 haswell\x00" in content


def test_another_build_of_pocl_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="0 times"):
        _patched(tmp_path, monkeypatch, AVX512, LIBRARY.replace(b"znver3", b"znver9"))


@pytest.mark.parametrize("patched", [False, True])
def test_a_copy_reads_a_short_header(patched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = _patched(tmp_path, monkeypatch, AVX512, patched=patched)
    share = copy.parents[2] / "pocl_binary_distribution" / ".libs" / "share"
    condition = "#if !defined(CODL_CALLS) || defined(CODL_CALLS_exp)\n"
    assert (share / "opencl-c.h").read_text() == condition + "float exp(float);\n#endif\n"
    assert (share / "kernel.bc").read_bytes() == b"BC"
    assert (copy.read_bytes() == LIBRARY) != patched
    assert "sincos" in (tmp_path / "site/pocl_binary_distribution/.libs/share/opencl-c.h").read_text()
    before = copy.parents[2].stat().st_mtime_ns
    assert _patched(tmp_path, monkeypatch, AVX512, patched=patched) == copy
    assert copy.parents[2].stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("vendor", "flags", "misnamed"),
    [("AuthenticAMD", "fpu avx512f", True), ("AuthenticAMD", "fpu avx2", False), ("GenuineIntel", "avx512f", False)],
)
def test_an_amd_with_avx512_is_not_what_its_llvm_takes_it_for(
    vendor: str, flags: str, misnamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n\nprocessor\t: 1\nvendor_id\t: other\n"
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    assert pocl.is_misnamed() == misnamed
    assert pocl.host_features() == set(flags.split())
