"""Compiled code is kept whole, found again, and bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tvm_codl.build import kernel_cache
from tvm_codl.build.kernel_cache import KernelCache, files_of, trim


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path))
    return tmp_path / "compiled"


@pytest.mark.parametrize("build_id", [None, "here"])
def test_what_was_put_is_found(build_id: str | None) -> None:
    cache = KernelCache(build_id)
    assert cache.get("abc", list) is None
    cache.put("abc", [1, "two", b"three"])
    assert cache.get("abc", list) == [1, "two", b"three"]
    assert (KernelCache("here").get("abc", list) is None) == (build_id is None)
    assert KernelCache("another").get("abc", list) is None


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"half"])
def test_a_damaged_file_is_as_none(folder: Path, damage: bytes) -> None:
    cache = KernelCache("here")
    cache.put("abc", [1, 2])
    (folder / "here/ab/abc").write_bytes(damage)
    assert cache.get("abc", list) is None
    cache.put("abc", [3])
    assert cache.get("abc", list) == [3]


def test_what_cannot_be_written_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        KernelCache("here").put("abc", [1])
    assert files_of(folder) == []


def test_what_is_too_large_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "MOST_EACH", 100)
    KernelCache("here").put("abc", b"x" * 200)
    assert files_of(folder) == []


def test_over_the_bound_what_was_not_used_for_longest_goes(folder: Path) -> None:
    cache = KernelCache("here")
    for number in range(10):
        cache.put(f"k{number}", b"x" * 98)  # 100 bytes each
        os.utime(folder / f"here/k{number}/k{number}", (number, number))
    cache.get("k0", bytes)  # used now
    trim(folder, most_bytes=1000)
    assert len(files_of(folder)) == 10
    trim(folder, most_bytes=800)
    left = {path.name for _, _, path in files_of(folder)}
    assert left == {"k0", "k5", "k6", "k7", "k8", "k9"}
