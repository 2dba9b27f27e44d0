"""A library is looked at before a phone is asked to load it."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tvm_codl.build.elf import check_library
from tvm_codl.errors import UserError

SOURCE = "const char __tvm_dev_mblob[4096] = {1};\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A shared library that looks like one of ours, by the host's compiler."""
    folder = tmp_path_factory.mktemp("elf")
    (folder / "one.c").write_text(SOURCE)
    compiler = next(c for c in ("cc", "gcc", "clang", "g++") if shutil.which(c))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "one.so", "one.c"], cwd=folder, check=True)
    return (folder / "one.so").read_bytes()


def arch(library: bytes) -> str:
    return {62: "x86_64", 183: "aarch64"}[int.from_bytes(library[18:20], "little")]


def refused(path: Path, content: bytes, words: str, arch: str = "x86_64") -> None:
    path.write_bytes(content)
    with pytest.raises(UserError, match=words) as error:
        check_library(path, arch)
    assert path.name in error.value.what
    assert error.value.evidence
    assert "tvm-codl build" in error.value.next


def changed(whole: bytes, at: int, form: str, value: int) -> bytes:
    data = bytearray(whole)
    struct.pack_into("<" + form, data, at, value)
    return bytes(data)


def test_a_whole_library_is_taken(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(whole)
    check_library(path, arch(whole))
    check_library(path, "riscv64")  # an architecture that is not known here is the phone's to judge


def test_any_shorter_file_is_refused(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "model.so"
    for size in {0, 1, 4, 63, 64, *range(0, len(whole), 509), len(whole) - 1}:
        refused(path, whole[:size], "is no shared library|is cut off", arch(whole))


@pytest.mark.parametrize(
    ("at", "form", "value", "words"),
    [
        (0, "B", 0, "no shared library"),
        (4, "B", 1, "64-bit"),
        (5, "B", 2, "64-bit"),
        (16, "H", 2, "ELF type 2"),
        (18, "H", 40, "another processor"),
        (32, "Q", 2**63, "segment table"),
        (40, "Q", 2**63, "section table"),
        (54, "H", 32, "is damaged"),
        (56, "H", 0, "is damaged"),
        (58, "H", 40, "is damaged"),
        (64 + 8, "Q", 2**40, "segment 0"),
        (64 + 32, "Q", 2**40, "is damaged|is cut off"),
    ],
)
def test_a_damaged_header_is_refused(tmp_path: Path, whole: bytes, at: int, form: str, value: int, words: str) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(changed(whole, at, form, value))
    with pytest.raises(UserError) as error:
        check_library(path, arch(whole))
    assert any(word in str(error.value) for word in words.split("|")), error.value


def test_a_library_of_another_processor_or_program(tmp_path: Path, whole: bytes) -> None:
    other = "aarch64" if arch(whole) == "x86_64" else "x86_64"
    refused(tmp_path / "model.so", whole, "another processor", other)
    refused(tmp_path / "model.so", whole.replace(b"__tvm_dev_mblob", b"__any_other_one"), "not built", arch(whole))


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.so"):
        with pytest.raises(UserError, match="cannot be read"):
            check_library(path, "x86_64")
