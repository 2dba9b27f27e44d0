"""A library is looked at before a phone is asked to load it."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.build.elf import check_android, check_library, read_linked
from tvm_codl.errors import UserError
from tvm_codl.runtime.platforms import PAGE_BYTES

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


def refused(path: Path, content: bytes, evidence: str, arch: str = "x86_64") -> None:
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        check_library(path, arch)
    assert path.name in error.value.what
    assert error.value.evidence and evidence in error.value.evidence
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
        refused(path, whole[:size], "", arch(whole))


@pytest.mark.parametrize(
    ("at", "form", "value", "evidence"),
    [
        (0, "B", 0, "begins with"),
        (4, "B", 1, "begins with"),
        (5, "B", 2, "begins with"),
        (16, "H", 2, "ET_EXEC"),
        (18, "H", 40, "EM_ARM"),
        (32, "Q", 2**63, "segment table"),
        (40, "Q", 2**63, "section table"),
        (54, "H", 32, "of 32 bytes"),
        (56, "H", 0, "0 segments"),
        (58, "H", 40, "of 40 bytes"),
        (64 + 8, "Q", 2**40, "segment 0"),
        (64 + 32, "Q", 2**40, "segment 0"),
    ],
)
def test_a_damaged_header_is_refused(
    tmp_path: Path, whole: bytes, at: int, form: str, value: int, evidence: str
) -> None:
    refused(tmp_path / "model.so", changed(whole, at, form, value), evidence, arch(whole))


@settings(max_examples=examples(100))
@given(st.data())
def test_any_damage_is_taken_or_refused(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """pyelftools must not get through with an error of its own."""
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    places = st.integers(0, 1024) | st.integers(0, len(whole) - 8)
    broken = whole
    for _ in range(data.draw(st.integers(1, 4))):
        broken = changed(broken, data.draw(places), "Q", data.draw(st.integers(0, 2**64 - 1)))
    path.write_bytes(broken)
    for read in (lambda: check_library(path, arch(whole)), lambda: read_linked(path)):
        with contextlib.suppress(UserError):
            read()


def test_a_library_of_another_processor_or_program(tmp_path: Path, whole: bytes) -> None:
    other = "aarch64" if arch(whole) == "x86_64" else "x86_64"
    refused(tmp_path / "model.so", whole, "the phone is", other)
    refused(
        tmp_path / "model.so", whole.replace(b"__tvm_dev_mblob", b"__any_other_one"), "__tvm_dev_mblob", arch(whole)
    )


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.so"):
        with pytest.raises(UserError, match="cannot be read"):
            check_library(path, "x86_64")


def linked(folder: Path, source: str, *options: str) -> Path:
    """A shared library without a C library, by the host's compiler."""
    (folder / "one.c").write_text(source)
    compiler = next(c for c in ("gcc", "cc", "clang") if shutil.which(c))
    path = folder / "one.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-nostdlib", "-o", str(path), str(folder / "one.c"), *options], check=True
    )
    return path


PAGES = f"-Wl,-z,max-page-size={PAGE_BYTES}"
# An address inside the code, which only the loader knows.
ADDRESS_IN_CODE = '__asm__(".text\\n.globl f\\nf: .quad f\\n");\n'


def test_what_android_takes(tmp_path: Path) -> None:
    path = linked(tmp_path, SOURCE, PAGES)
    assert read_linked(path).needed == () and read_linked(path).alignment == PAGE_BYTES
    check_android(path)


def test_needed_libraries_are_read_and_judged(tmp_path: Path) -> None:
    path = linked(tmp_path, SOURCE, PAGES, "-Wl,--no-as-needed", "-lm", "-lc")
    needed = read_linked(path).needed
    assert [name.split(".")[0] for name in needed] == ["libm", "libc"]
    with pytest.raises(UserError, match="does not have") as error:
        check_android(path)
    assert error.value.evidence == ", ".join(sorted(needed))


def test_small_pages_and_relocations_in_code_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not load on every Android") as error:
        check_android(linked(tmp_path, SOURCE, "-Wl,-z,max-page-size=4096"))
    assert "4096" in error.value.evidence
    with pytest.raises(UserError, match="text relocations"):
        check_android(linked(tmp_path, ADDRESS_IN_CODE, PAGES, "-Wl,-z,notext"))


def test_a_library_that_is_cut_off_is_no_library_to_read(tmp_path: Path) -> None:
    path = linked(tmp_path, SOURCE, PAGES)
    whole = path.read_bytes()
    for size in (0, 63, 100, 300):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError):
            read_linked(path)
