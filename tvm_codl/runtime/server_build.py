"""Builds the phone's native server (rpc_apps/cpp_rpc) for a platform: ``python -m tvm_codl.runtime.server_build PLATFORM``.

TVM's runtime takes longest to build and changes least.  It is built separately and kept, so that an edit of the server or
the co-executor costs seconds.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.paths import cache_dir
from tvm_codl.runtime import compile as native
from tvm_codl.runtime.platforms import Platform, platform

SOURCES = Path(__file__).parents[2] / "rpc_apps" / "cpp_rpc"
_COEXEC = ("coexec/*.cc", "coexec/*.h", "opencl/*.cc", "opencl/*.h")
_SERVER = ("src/*.cc", "src/*.h")


class ServerBuild(msgspec.Struct, frozen=True):
    """What a native server reports (its packed function ``codl.build``, and ``--version``).

    ``coexec`` changes with the co-executor's sources and TVM's version, and must be equal on both sides.  ``build_id`` also
    changes with the server's sources and platform.  ``kind`` is ``server`` or ``app``.  ``packet_bytes``, ``session_s``
    and ``memory_bytes`` limit a session; 0: no limit.
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
    """The server's program for the platform ``host``, ``linux-arm64`` or ``android-arm64``, built if missing.

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
    what = f"the native server does not build for {name}"
    remedy = f"python -m tvm_codl.runtime.server_build {name}   (the compiler is {target.cxx}, {target.version})"
    shared = (f"-DCODL_NATIVE={native.SOURCES}", *target.cmake)
    archive = _runtime_dir(target) / "libtvm_phone_runtime.a"
    native.build_cmake(archive, SOURCES / "tvm_runtime", shared, what, remedy)
    options = (*shared, f"-DCODL_TVM_RUNTIME={archive}", f"-DCODL_PLATFORM={name}")
    return native.build_cmake(_server_dir(target) / "tvm_codl_server", SOURCES, options, what, remedy)


def coexec_id() -> str:
    """Identifies the co-executor and TVM installed here; a server's must be equal (:class:`ServerBuild`)."""
    return hashlib.sha256(f"{_tvm_version()}\n{_hash_files(native.SOURCES, _COEXEC)}".encode()).hexdigest()[:16]


def build_id(name: str) -> str:
    """Identifies a server built from the sources here for that platform."""
    return hashlib.sha256(f"{coexec_id()}\n{name}\n{_hash_files(SOURCES, _SERVER)}".encode()).hexdigest()[:16]


def _tvm_version() -> str:
    """From TVM's headers; CMake reads the same line."""
    header = native.tvm_root() / "include/tvm/runtime/c_runtime_api.h"
    match = re.search(r'#define TVM_VERSION .*"(.*)"', header.read_text())
    return match[1] if match else ""


def _hash_files(folder: Path, patterns: Sequence[str]) -> str:
    """Names and digests, in the form that CMakeLists.txt builds, too."""
    files = sorted(
        {p for pattern in patterns for p in folder.glob(pattern)}, key=lambda p: p.relative_to(folder).as_posix()
    )
    return "".join(f"{p.relative_to(folder).as_posix()} {hashlib.sha256(p.read_bytes()).hexdigest()}\n" for p in files)


def _runtime_dir(target: Platform) -> Path:
    how = (SOURCES / "tvm_runtime/CMakeLists.txt").read_text()
    shim = _hash_files(native.SOURCES / "shim", ("**/*.h",))
    return _folder("tvm-runtime", target, f"{_tvm_version()}|{native.tvm_root()}|{how}|{shim}")


def _server_dir(target: Platform) -> Path:
    how = "".join((SOURCES / name).read_text() for name in ("CMakeLists.txt", "exports.txt"))
    return _folder("server", target, f"{build_id(target.name)}|{how}|{_runtime_dir(target)}")


def _folder(kind: str, target: Platform, content: str) -> Path:
    key = hashlib.sha256(f"{content}|{target.cxx}|{target.version}|{target.cmake}".encode()).hexdigest()[:16]
    return cache_dir() / "native" / f"{kind}-{target.name}-{key}"


if __name__ == "__main__":
    print(compile_server(sys.argv[1] if len(sys.argv) > 1 else "host"))
