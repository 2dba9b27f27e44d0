"""The app's native library for a phone, built with the user's NDK, or the same library for a JVM on this machine."""

from __future__ import annotations

from pathlib import Path

from rpc_apps.android_rpc.tvm4j import HERE, java_tool
from tvm_codl.runtime.compile import build_cmake
from tvm_codl.runtime.platforms import platform

SOURCES = HERE / "app/src/main/cpp"
LIBRARY = "libtvm4j_runtime_packed.so"


def build_native(folder: Path, name: str = "android-arm64") -> Path:
    """Builds the library for a platform of :mod:`tvm_codl.runtime.platforms`; the tests run ``host``'s in a JVM.

    Raises :class:`UserError` without an NDK, or with the compiler's message.
    """
    java = Path(java_tool("javac")).resolve().parents[1]
    options = [*platform(name).cmake, f"-DCODL_PLATFORM={name}", f"-DCODL_JAVA_HOME={java}"]
    what, remedy = "the app's native library does not build", "tvm-codl doctor"
    return build_cmake(folder / LIBRARY, SOURCES, options, what, remedy)
