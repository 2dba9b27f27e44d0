"""Target platforms and their compilers: this machine, arm64 Linux, arm64 Android."""

from __future__ import annotations

import os
import platform as machine
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import msgspec
from elftools.elf.elffile import ELFFile

from tvm_codl.errors import UserError, WorkplaceError

NAMES = ("android-arm64", "linux-arm64", "host")
#: The oldest Android that is built for (7.0); the NDK's compilers carry it in their names.
ANDROID_API = 24
ANDROID_TRIPLE = f"aarch64-linux-android{ANDROID_API}"
LINUX_TRIPLE = "aarch64-linux-gnu"
#: Android 15 may have pages of 16 KiB, and refuses a library whose segments are aligned to less.
PAGE_BYTES = 16384
#: The variables that name an NDK's folder, and the one by which TVM knows its compiler.
NDK_FOLDERS, NDK_COMPILER = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT"), "TVM_NDK_CC"

_ARM = ("aarch64", "arm64")
_PROBE = 'extern "C" float expf(float);\nextern "C" float codl_probe(float x) { return expf(x); }\n'
_CXX17_PROBE = '#include <optional>\nextern "C" int codl_probe() { std::optional<int> x = 0; return *x; }\n'
_PAGES = f"-Wl,-z,max-page-size={PAGE_BYTES}"
# Android refuses text relocations; a missing symbol should fail here and not in the phone's loader; and an unused library
# must not be needed, above all the C++ library, which Android does not have.
_ANDROID_LINK = (_PAGES, "-Wl,-z,text", "-Wl,--no-undefined", "-Wl,--as-needed")


class Platform(msgspec.Struct, frozen=True):
    """A platform and its tools.

    ``triple`` is LLVM's name, empty for this machine; ``cxx`` the path of the C++ compiler and ``version`` its first line of
    ``--version``; ``cmake`` the arguments for CMake, ``cc_options`` those for linking a library.  ``run`` is a prefix of
    the command that runs a program here; Android's programs run on a phone only.
    """

    name: str
    triple: str
    cxx: str
    version: str
    cmake: tuple[str, ...] = ()
    cc_options: tuple[str, ...] = ()
    run: tuple[str, ...] = ()


def platform(name: str) -> Platform:
    """The platform ``android-arm64``, ``linux-arm64`` or ``host``, its compiler found and tested.

    Raises :class:`UserError` where there is no compiler, or it makes no shared library.
    """
    if name == "android-arm64":
        return _android()
    if name == "linux-arm64" and machine.machine() not in _ARM:
        return _linux_arm64()
    if name in ("host", "linux-arm64"):
        return _host(name)
    raise UserError(f"there is no platform {name!r}", f"there are {', '.join(NAMES)}", "tvm-codl build --help")


def name_of(triple: str) -> str:
    """The platform's name for an LLVM triple; empty or this machine's own is ``host``."""
    arch, _, rest = triple.partition("-")
    if arch not in _ARM:
        return "host"
    if "android" in rest:
        return "android-arm64"
    return "host" if machine.machine() in _ARM else "linux-arm64"


def triple_of(target: str) -> str:
    """``mtriple`` of a target string; empty for this machine's."""
    return next((word.partition("=")[2] for word in target.split() if word.startswith("-mtriple=")), "")


def _host(name: str) -> Platform:
    wanted = [*filter(None, [os.environ.get("CXX")]), "g++", "c++", "clang++"]
    cxx = next(filter(None, map(shutil.which, wanted)), None)
    if cxx is None:
        raise WorkplaceError("no C++ compiler", f"looked for {', '.join(wanted)} on PATH", "apt-get install g++")
    triple = LINUX_TRIPLE if name == "linux-arm64" else ""
    return Platform(
        name, triple, cxx, _try_compiler(cxx, ("-std=c++17",), "", _CXX17_PROBE), (f"-DCMAKE_CXX_COMPILER={cxx}",)
    )


def _linux_arm64() -> Platform:
    wanted = f"{LINUX_TRIPLE}-g++"
    cxx = shutil.which(wanted)
    if cxx is None:
        raise WorkplaceError(
            "no compiler for arm64 Linux",
            f"looked for {wanted} on PATH",
            "apt-get install g++-aarch64-linux-gnu qemu-user-static   (as root; or docker/install/arm64.sh)",
        )
    cmake = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_CXX_COMPILER={cxx}")
    run = ("qemu-aarch64-static", "-L", f"/usr/{LINUX_TRIPLE}")
    return Platform("linux-arm64", LINUX_TRIPLE, cxx, _try_compiler(cxx, (), "aarch64"), cmake, (), run)


def _android() -> Platform:
    named = os.environ.get(NDK_COMPILER)
    folders = {name: os.environ[name] for name in NDK_FOLDERS if os.environ.get(name)}
    if named:
        compiler = shutil.which(named)
        if compiler is None:
            raise WorkplaceError(
                "the Android compiler is not there",
                f"{NDK_COMPILER}={named} is no program",
                f"export {NDK_COMPILER}=NDK/toolchains/llvm/prebuilt/linux-x86_64/bin/{ANDROID_TRIPLE}-clang++",
            )
        cxx, ndk = compiler, _ndk_of(Path(compiler))
    elif folders:
        variable, folder = next(iter(folders.items()))
        ndk = Path(folder)
        pattern = f"toolchains/llvm/prebuilt/*/bin/{ANDROID_TRIPLE}-clang++"
        compilers = sorted(str(p) for p in ndk.glob(pattern) if os.access(p, os.X_OK))
        if not compilers:
            raise WorkplaceError(
                "no Android NDK in the folder that is named",
                f"{variable}={folder} has no {pattern}",
                f"export {variable}=/path/to/android-ndk-r27",
            )
        cxx = compilers[0]
    else:
        raise WorkplaceError(
            "no Android NDK",
            f"looked for {', '.join(NDK_FOLDERS)} (its folder) and {NDK_COMPILER} (its compiler) in the environment",
            "install the NDK (Android Studio: SDK Manager, SDK Tools), then  export ANDROID_NDK_HOME=/path/to/it",
        )
    version = _try_compiler(cxx, _ANDROID_LINK, "aarch64")
    if ndk is not None:
        version = f"NDK {_revision(ndk)}, {version}"
    return Platform("android-arm64", ANDROID_TRIPLE, cxx, version, _android_cmake(cxx, ndk), _ANDROID_LINK)


def _android_cmake(cxx: str, ndk: Path | None) -> tuple[str, ...]:
    if ndk is None:  # the user's own compiler, which knows its system root
        flags = tuple(f"-DCMAKE_{kind}_LINKER_FLAGS={_PAGES}" for kind in ("SHARED", "EXE"))
        system = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DANDROID=ON")
        return (*system, f"-DCMAKE_CXX_COMPILER={cxx}", *flags)
    return (
        f"-DCMAKE_TOOLCHAIN_FILE={ndk / 'build/cmake/android.toolchain.cmake'}",
        "-DANDROID_ABI=arm64-v8a",
        f"-DANDROID_PLATFORM=android-{ANDROID_API}",
        "-DANDROID_STL=c++_static",
        "-DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON",
    )


def _ndk_of(compiler: Path) -> Path | None:
    """The NDK that a compiler belongs to: NDK/toolchains/llvm/prebuilt/HOST/bin/COMPILER."""
    root = compiler.parents[5] if len(compiler.parents) > 5 else None
    return root if root is not None and (root / "build/cmake/android.toolchain.cmake").exists() else None


def _revision(ndk: Path) -> str:
    """An NDK's version, from its source.properties."""
    try:
        lines = (ndk / "source.properties").read_text().splitlines()
    except OSError:
        return "of unknown version"
    pairs = (line.partition("=") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == "Pkg.Revision"), "of unknown version")


@cache
def _try_compiler(cxx: str, options: tuple[str, ...], arch: str, text: str = _PROBE) -> str:
    """The compiler's version, after it has made a small shared library for ``arch`` (empty: for any)."""
    with tempfile.TemporaryDirectory(prefix="codl-probe-") as folder:
        source, library = Path(folder, "probe.cc"), Path(folder, "libprobe.so")
        source.write_text(text)
        command = [cxx, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), *options]
        made = _run(command)
        if made.returncode != 0 or not library.exists():
            raise WorkplaceError(
                f"{cxx} makes no shared library",
                made.stderr.strip()[-500:] or f"exit code {made.returncode}",
                " ".join(command[:5]) + " -o libprobe.so probe.cc " + " ".join(options),
            )
        with library.open("rb") as file:
            kind = ELFFile(file)["e_machine"]
    if arch == "aarch64" and kind != "EM_AARCH64":
        raise WorkplaceError(
            f"{cxx} does not compile for arm64",
            f"its libraries are of ELF machine {kind}, arm64's have EM_AARCH64",
            f"name a compiler for arm64, for example {ANDROID_TRIPLE}-clang++",
        )
    return (_run([cxx, "--version"]).stdout.splitlines() or ["unknown version"])[0].strip()


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", f"{type(error).__name__}: {error}")
