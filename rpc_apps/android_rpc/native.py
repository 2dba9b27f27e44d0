"""The app's native library for a phone, built with the user's NDK, or the same library for a JVM on this machine."""

from __future__ import annotations

from pathlib import Path

from rpc_apps.android_rpc.tvm4j import HERE, java_tool, run
from tvm_codl.runtime.compile import tool, tvm_root
from tvm_codl.runtime.platforms import platform

SOURCES = HERE / "app/src/main/cpp"
LIBRARY = "libtvm4j_runtime_packed.so"


def build_native(folder: Path, name: str = "android-arm64", runtime: Path | None = None) -> Path:
    """Builds the library for a platform of :mod:`tvm_codl.runtime.platforms`; the tests run ``host``'s in a JVM.

    ``runtime`` is a ``libtvm_phone_runtime.a`` that was built before.  Raises :class:`UserError` without an NDK, or with
    the compiler's message.
    """
    target, java = platform(name), Path(java_tool("javac")).resolve().parents[1]
    words = [*target.cmake, f"-DCODL_PLATFORM={name}", f"-DCODL_JAVA_HOME={java}", f"-DTVM_ROOT={tvm_root()}"]
    if runtime is not None:
        words.append(f"-DCODL_TVM_RUNTIME={runtime}")
    cmake, what = tool("cmake"), "the app's native library does not build"
    run([cmake, "-S", SOURCES, "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", *words], what)
    run([cmake, "--build", folder, "--target", "tvm4j_runtime_packed"], what)
    return folder / LIBRARY
