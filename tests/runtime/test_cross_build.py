"""Libraries for platforms that this machine is not, as their files say it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from platform import machine

import pytest

from tests.phone import android_stubs, emulated
from tests.phone.cross_libraries import cross_library
from tests.runtime.kernel_tasks import conv_task, first_legal, inputs_of
from tvm_codl.build.elf import check_android, check_library, read_linked
from tvm_codl.build.library import linker_for
from tvm_codl.cli.main import run
from tvm_codl.device.generic import generic_profile
from tvm_codl.errors import UserError
from tvm_codl.kernels.toolchain import toolchain
from tvm_codl.kernels.tuner.builder import BatchBuilder
from tvm_codl.runtime.platforms import NDK_COMPILER, NDK_FOLDERS, PAGE_BYTES

needs_cross = pytest.mark.skipif(bool(emulated.missing()), reason=emulated.missing())
needs_clang = pytest.mark.skipif(bool(android_stubs.missing()), reason=android_stubs.missing())
needs_readelf = pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf: it is part of binutils")


def readelf(path: Path, *options: str) -> str:
    return subprocess.run(["readelf", "-W", *options, str(path)], check=True, capture_output=True, text=True).stdout


@pytest.fixture()
def android(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of both processors, linked for Android."""
    monkeypatch.setenv(NDK_COMPILER, str(android_stubs.compiler(tmp_path / "ndk")))
    return cross_library("android-arm64", tmp_path / "android.so")


@needs_clang
@needs_readelf
def test_readelf_of_a_library_for_android(android: Path) -> None:
    header, dynamic, segments = readelf(android, "-h"), readelf(android, "-d"), readelf(android, "-l")
    assert re.search(r"Class:\s+ELF64", header) and re.search(r"Machine:\s+AArch64", header)
    needed = set(re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic))
    assert needed and needed <= {"libc.so", "libm.so", "libdl.so", "liblog.so"}
    assert "TEXTREL" not in dynamic
    alignments = [int(line.split()[-1], 16) for line in segments.splitlines() if line.split()[:1] == ["LOAD"]]
    assert alignments and min(alignments) >= PAGE_BYTES
    assert f"Name: {android_stubs.VERSION}" in readelf(android, "-V")
    # And what is read without readelf is the same.
    linked = read_linked(android)
    assert (set(linked.needed), linked.text_relocations, linked.alignment) == (needed, False, min(alignments))
    check_library(android, "aarch64")


@needs_clang
def test_a_library_that_needs_what_android_lacks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cxx = android_stubs.compiler(tmp_path / "ndk")
    soname = "-Wl,-soname,libc++_shared.so"
    extra = tmp_path / "ndk/stubs/libextra.so"
    subprocess.run([str(cxx), "-shared", soname, "-o", str(extra), "-x", "c++", "/dev/null"], check=True)
    cxx.write_text(cxx.read_text().replace(' "$@"', ' "$@" -Wl,--no-as-needed -lextra'))
    monkeypatch.setenv(NDK_COMPILER, str(cxx))
    with pytest.raises(UserError, match="libraries that Android does not have") as error:
        cross_library("android-arm64", tmp_path / "android.so", other="cpu")
    assert error.value.evidence == "libc++_shared.so"
    assert not (tmp_path / "android.so").exists()


@needs_cross
def test_a_library_for_arm64_linux(tmp_path: Path) -> None:
    path = cross_library("linux-arm64", tmp_path / "linux.so")
    check_library(path, "aarch64")
    with pytest.raises(UserError, match="another processor"):
        check_library(path, "x86_64")
    assert set(read_linked(path).needed) <= {"libc.so.6", "libm.so.6"}
    with pytest.raises(UserError, match="does not have"):
        check_android(path)


@needs_cross
def test_the_command_builds_for_a_phone_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.so"
    words = ["build", "zoo:small", "--target", "linux-arm64", "--plan", "cpu-only", "-o", str(path), "--json"]
    assert run(words) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["library"], about["bytes"]) == (str(path), path.stat().st_size)
    assert about["device"] == "any linux-arm64"
    check_library(path, "aarch64")


def test_without_an_ndk_the_command_says_what_it_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (*NDK_FOLDERS, NDK_COMPILER):
        monkeypatch.delenv(name, raising=False)
    words = ["build", "zoo:small", "--target", "android-arm64", "--plan", "cpu-only", "-o", str(tmp_path / "a.so")]
    assert run(words) == 1
    err = capsys.readouterr().err
    assert "no Android NDK" in err and all(name in err for name in (*NDK_FOLDERS, NDK_COMPILER))


@pytest.mark.parametrize("more", [[], ["--plan", "cpu-only", "--adaptive"]])
def test_a_plan_for_a_phone_needs_the_phone(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["build", "zoo:small", "--target", "android-arm64", *more]) == 2
    assert "--rpc-tracker" in capsys.readouterr().err


@pytest.mark.skipif(machine() in ("aarch64", "arm64"), reason="the reference phone is an arm64 one here")
def test_a_phone_of_another_kind_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--local", "--plan", "cpu-only", "-o", str(tmp_path / "a.so")]
    assert run(["build", "zoo:small", "--target", "linux-arm64", *words]) == 1
    err = capsys.readouterr().err
    assert "runs no library that is built for linux-arm64" in err and "--target host" in err


@needs_cross
def test_kernels_are_tuned_with_the_linker_of_the_phone() -> None:
    """As tuning.py has it: with the host's linker each candidate would fail, and be remembered so."""
    target = toolchain(generic_profile("linux-arm64")).cpu
    task = conv_task(target)
    builder = BatchBuilder(workers=1, fcompile=linker_for(target))
    builder.set_task(task, {})
    (result,) = builder.build(inputs_of(task, *first_legal(task, 1)))
    assert result.error is None
    assert int.from_bytes(Path(result.filename).read_bytes()[18:20], "little") == 183, "EM_AARCH64"
    builder.close()
