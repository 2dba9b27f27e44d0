"""Compilers are found, tried and named; what is missing is said with what was looked for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.phone import android_stubs
from tvm_codl.errors import UserError
from tvm_codl.runtime.platforms import (
    ANDROID_API,
    ANDROID_TRIPLE,
    LINUX_TRIPLE,
    NDK_COMPILER,
    NDK_FOLDERS,
    PAGE_BYTES,
    Platform,
    name_of,
    platform,
)

COMPILER = f"{ANDROID_TRIPLE}-clang++"
REVISION = "27.0.12077973"

needs_cross = pytest.mark.skipif(
    shutil.which(f"{LINUX_TRIPLE}-g++") is None or shutil.which("qemu-aarch64-static") is None,
    reason="no cross compiler or no emulator: docker/install/arm64.sh installs them",
)
needs_clang = pytest.mark.skipif(bool(android_stubs.missing()), reason=android_stubs.missing())


@pytest.fixture(autouse=True)
def _no_ndk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NDK_FOLDERS, NDK_COMPILER, "CXX"):
        monkeypatch.delenv(name, raising=False)


def ndk(folder: Path) -> Path:
    """A folder laid out as an NDK is, with a compiler that links against stubs."""
    binaries = folder / "toolchains/llvm/prebuilt/linux-x86_64/bin"
    android_stubs.compiler(binaries)
    (folder / "build/cmake").mkdir(parents=True)
    (folder / "build/cmake/android.toolchain.cmake").write_text("# Google's\n")
    (folder / "source.properties").write_text(f"Pkg.Desc = Android NDK\nPkg.Revision = {REVISION}\n")
    return folder


def script(path: Path, words: str) -> str:
    path.write_text(f"#!/bin/sh\n{words}\n")
    path.chmod(0o755)
    return str(path)


def machine(program: Path) -> int:
    return int.from_bytes(program.read_bytes()[18:20], "little")


def hello(where: Platform, folder: Path) -> list[str]:
    """The command of a program that was compiled for a platform."""
    (folder / "hello.cc").write_text('#include <cstdio>\nint main() { std::puts("hello"); }\n')
    subprocess.run([where.cxx, "-o", str(folder / "hello"), str(folder / "hello.cc")], check=True)
    return [*where.run, str(folder / "hello")]


@pytest.mark.parametrize(
    ("triple", "name"),
    [
        ("", "host"),
        ("x86_64-pc-linux-gnu", "host"),
        ("aarch64-linux-android24", "android-arm64"),
        ("aarch64-none-linux-android33", "android-arm64"),
        ("arm64-linux-android", "android-arm64"),
    ],
)
def test_a_triple_names_its_platform(triple: str, name: str) -> None:
    assert name_of(triple) == name


def test_arm64_linux_is_a_platform_of_its_own_unless_this_machine_is_one() -> None:
    native = os.uname().machine in ("aarch64", "arm64")
    assert name_of("aarch64-linux-gnu") == ("host" if native else "linux-arm64")


def test_this_machine_needs_no_emulator(tmp_path: Path) -> None:
    host = platform("host")
    assert (host.name, host.triple, host.run) == ("host", "", ())
    assert host.version
    done = subprocess.run(hello(host, tmp_path), capture_output=True, text=True, check=True)
    assert done.stdout == "hello\n"


@needs_cross
def test_arm64_linux_compiles_and_its_programs_run_here(tmp_path: Path) -> None:
    linux = platform("linux-arm64")
    assert linux.triple == LINUX_TRIPLE
    assert f"-DCMAKE_CXX_COMPILER={linux.cxx}" in linux.cmake
    done = subprocess.run(hello(linux, tmp_path), capture_output=True, text=True, check=True)
    assert done.stdout == "hello\n"
    assert machine(tmp_path / "hello") == 183


def test_missing_cross_compiler_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if name_of("aarch64-linux-gnu") == "host":
        pytest.skip("this machine needs no cross compiler")
    with pytest.raises(UserError) as error:
        platform("linux-arm64")
    assert f"{LINUX_TRIPLE}-g++" in error.value.evidence
    assert "g++-aarch64-linux-gnu" in error.value.next
    with pytest.raises(UserError, match="no C\\+\\+ compiler"):
        platform("host")


def test_unknown_platform_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="no platform 'ios'") as error:
        platform("ios")
    assert "android-arm64, linux-arm64, host" in error.value.evidence


def test_without_an_ndk_all_that_was_looked_for_is_named() -> None:
    with pytest.raises(UserError, match="no Android NDK") as error:
        platform("android-arm64")
    assert all(name in error.value.evidence for name in (*NDK_FOLDERS, NDK_COMPILER))
    assert NDK_FOLDERS[0] in error.value.next


@pytest.mark.parametrize("variable", NDK_FOLDERS)
def test_a_folder_that_is_no_ndk_is_said_to_be_none(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(UserError) as error:
        platform("android-arm64")
    assert f"{variable}={tmp_path}" in error.value.evidence
    assert COMPILER in error.value.evidence


def test_a_compiler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(NDK_COMPILER, str(tmp_path / "none"))
    with pytest.raises(UserError, match="not there") as error:
        platform("android-arm64")
    assert str(tmp_path / "none") in error.value.evidence


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(NDK_COMPILER, script(tmp_path / "broken", "echo no such target >&2; exit 3"))
    with pytest.raises(UserError, match="makes no shared library") as error:
        platform("android-arm64")
    assert "no such target" in error.value.evidence
    assert str(tmp_path / "broken") in error.value.next


@pytest.mark.skipif(os.uname().machine in ("aarch64", "arm64"), reason="this machine's compiler is one for arm64")
def test_a_compiler_for_another_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NDK_COMPILER, platform("host").cxx)
    with pytest.raises(UserError, match="does not compile for arm64") as error:
        platform("android-arm64")
    assert "EM_AARCH64" in error.value.evidence


@needs_clang
@pytest.mark.parametrize("by", [*NDK_FOLDERS, NDK_COMPILER])
def test_an_ndk_is_found_and_its_version_kept(by: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = ndk(tmp_path / "ndk")
    cxx = folder / "toolchains/llvm/prebuilt/linux-x86_64/bin" / COMPILER
    monkeypatch.setenv(by, str(cxx if by == NDK_COMPILER else folder))
    android = platform("android-arm64")
    assert (android.name, android.triple, android.cxx) == ("android-arm64", ANDROID_TRIPLE, str(cxx))
    assert android.version.startswith(f"NDK {REVISION}, ") and "clang" in android.version
    assert f"-DCMAKE_TOOLCHAIN_FILE={folder / 'build/cmake/android.toolchain.cmake'}" in android.cmake
    assert f"-Wl,-z,max-page-size={PAGE_BYTES}" in android.cc_options


@needs_clang
def test_a_compiler_that_is_named_goes_before_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(NDK_FOLDERS[0], str(ndk(tmp_path / "ndk")))
    own = android_stubs.compiler(tmp_path / "own")
    monkeypatch.setenv(NDK_COMPILER, str(own))
    android = platform("android-arm64")
    assert android.cxx == str(own)
    assert f"-DCMAKE_CXX_COMPILER={own}" in android.cmake  # CMake is given no NDK that was not meant
    assert not any("TOOLCHAIN_FILE" in word for word in android.cmake)


#: Functions that Android's C library has from a later API than ours on, by its headers' __INTRODUCED_IN.
LATER = (
    "aligned_alloc", "getrandom", "glob", "posix_spawn", "fexecve", "getlogin_r", "timespec_get", "memfd_create",
    "copy_file_range", "getloadavg", "pthread_getaffinity_np", "pthread_setaffinity_np", "iconv", "sync_file_range",
    "reallocarray", "mlock2", "pthread_cond_clockwait", "sem_clockwait", "strerrorname_np", "close_range",
)  # fmt: skip


def test_native_sources_use_nothing_that_the_oldest_android_lacks() -> None:
    """No NDK is at hand to compile them with its headers."""
    assert ANDROID_API == 24
    root = Path(__file__).parents[3]
    sources = [
        path
        for folder in ("tvm_codl/runtime/native", "rpc_apps/cpp_rpc/src", "rpc_apps/android_rpc/app/src/main/cpp")
        for path in (root / folder).rglob("*")
        if path.suffix in (".cc", ".h")
    ]
    assert len(sources) > 50
    used = re.compile(rf"\b({'|'.join(LATER)})\s*\(")
    found = {path.name: match[1] for path in sources if (match := used.search(re.sub(r"//.*", "", path.read_text())))}
    assert found == {}
