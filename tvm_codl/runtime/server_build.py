"""Builds the phone's native server (rpc_apps/cpp_rpc) for a platform: ``python -m tvm_codl.runtime.server_build PLATFORM``.

TVM's runtime is most of the work and changes least; it is built apart and kept, so that an edit of the server or of the
co-executor costs seconds.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import filelock
import msgspec

from tvm_codl.errors import UserError
from tvm_codl.paths import cache_dir
from tvm_codl.runtime import compile as native
from tvm_codl.runtime.platforms import Platform, platform

SOURCES = Path(__file__).parents[2] / "rpc_apps" / "cpp_rpc"
_COEXEC = ("coexec/*.cc", "coexec/*.h", "opencl/*.cc", "opencl/*.h")
_SERVER = ("src/*.cc", "src/*.h")


class ServerBuild(msgspec.Struct, frozen=True):
    """What a native server says of itself (its packed function ``codl.build``, and ``--version``).

    ``coexec`` changes with the co-executor's sources and TVM's version: it must be the same on both sides.  ``build_id``
    also changes with the server's sources and its platform.  ``kind`` is ``server`` or ``app``.  ``packet_bytes``, ``session_s`` and ``memory_bytes`` are its
    limits for a session; 0: none.
    """

    build_id: str
    coexec: str
    tvm: str = ""
    platform: str = ""
    kind: str = "server"
    compiler: str = ""
    packet_bytes: int = 0
    session_s: float = 0.0
    memory_bytes: int = 0


def compile_server(name: str = "host") -> Path:
    """The server's program for the platform ``host``, ``linux-arm64`` or ``android-arm64``, built if it is not built yet.

    Raises :class:`UserError` where the platform has no compiler, where the server's sources are not there (a package
    without its repository), and with the compiler's own words where it fails.
    """
    if not (SOURCES / "CMakeLists.txt").exists():
        raise UserError(
            "the native server's sources are not beside this package",
            f"no {SOURCES / 'CMakeLists.txt'}",
            "build from a clone of the repository: python -m tvm_codl.runtime.server_build",
        )
    target = platform(name)
    runtime = _runtime_dir(target)
    _made(runtime, "libtvm_phone_runtime.a", SOURCES / "tvm_runtime", target, ())
    archive = runtime / "libtvm_phone_runtime.a"
    options = (f"-DCODL_TVM_RUNTIME={archive}", f"-DCODL_PLATFORM={name}")
    return _made(_server_dir(target), "tvm_codl_server", SOURCES, target, options)


def coexec_id() -> str:
    """Of the co-executor and the TVM that are installed here; a server's must be the same (:class:`ServerBuild`)."""
    return hashlib.sha256(f"{_tvm_version()}\n{_listed(native.SOURCES, _COEXEC)}".encode()).hexdigest()[:16]


def build_id(name: str) -> str:
    """Of a server that is built from the sources here for that platform."""
    return hashlib.sha256(f"{coexec_id()}\n{name}\n{_listed(SOURCES, _SERVER)}".encode()).hexdigest()[:16]


def _tvm_version() -> str:
    """As TVM's headers say it: CMake reads the same line."""
    header = native.tvm_root() / "include/tvm/runtime/c_runtime_api.h"
    match = re.search(r'#define TVM_VERSION .*"(.*)"', header.read_text())
    return match[1] if match else ""


def _listed(folder: Path, patterns: Sequence[str]) -> str:
    """Names and digests, as CMakeLists.txt puts them together."""
    files = sorted(
        {p for pattern in patterns for p in folder.glob(pattern)}, key=lambda p: p.relative_to(folder).as_posix()
    )
    return "".join(f"{p.relative_to(folder).as_posix()} {hashlib.sha256(p.read_bytes()).hexdigest()}\n" for p in files)


def _runtime_dir(target: Platform) -> Path:
    how = (SOURCES / "tvm_runtime/CMakeLists.txt").read_text()
    shim = _listed(native.SOURCES / "shim", ("**/*.h",))
    return _folder("tvm-runtime", target, f"{_tvm_version()}|{native.tvm_root()}|{how}|{shim}")


def _server_dir(target: Platform) -> Path:
    how = "".join((SOURCES / name).read_text() for name in ("CMakeLists.txt", "exports.txt"))
    return _folder("server", target, f"{build_id(target.name)}|{how}|{_runtime_dir(target)}")


def _folder(kind: str, target: Platform, content: str) -> Path:
    key = hashlib.sha256(f"{content}|{target.cxx}|{target.version}|{target.cmake}".encode()).hexdigest()[:16]
    return cache_dir() / "native" / f"{kind}-{target.name}-{key}"


def _made(folder: Path, name: str, sources: Path, target: Platform, options: Sequence[str]) -> Path:
    """``folder/name``, built by CMake from ``sources`` where it is not there."""
    result = folder / name
    if result.exists():
        return result
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{folder}.lock"):
        if not result.exists():
            building = folder / "build"
            cmake = native.tool("cmake")
            generator = ("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={native.tool('ninja')}")
            given = (f"-DTVM_ROOT={native.tvm_root()}", f"-DCODL_NATIVE={native.SOURCES}", *target.cmake, *options)
            _run([cmake, "-S", str(sources), "-B", str(building), *generator, *given], target)
            _run([cmake, "--build", str(building)], target)
            # At once and last, so that a build that was cut short does not pass for one.
            os.replace(building / name, result)
    return result


def _run(command: list[str], target: Platform) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = done.stdout + done.stderr
        errors = [line for line in words.splitlines() if "error" in line.lower()] or words.splitlines()[-5:]
        raise UserError(
            f"the native server does not build for {target.name}",
            "\n    ".join(errors[:5]),
            " ".join(command[:5]) + f"   (the compiler is {target.cxx}, {target.version})",
        )


if __name__ == "__main__":
    print(compile_server(sys.argv[1] if len(sys.argv) > 1 else "host"))
