"""TVM's Java binding, compiled from the installed TVM's own sources: ``python -m rpc_apps.android_rpc.tvm4j -o DIR``.

``DIR`` gets ``classes`` and ``libtvm4j.so`` for a JVM on this machine.  The Android app compiles the same Java and JNI sources
with the NDK (``native.py``).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_codl.errors import UserError
from tvm_codl.runtime.compile import run, tvm_root

HERE = Path(__file__).parent
#: Our own Java: for the app and a JVM, and for a JVM only.
SERVE = HERE / "app/src/main/java/org/tvmcodl/rpc/serve"
JVM = HERE / "app/src/jvm/java"
#: The level that dx and Android 7 support.
ANDROID_JAVA = "8"


@dataclass(frozen=True)
class Binding:
    """A compiled binding: the folder of its classes, its JNI library, and TVM's runtime library."""

    classes: Path
    library: Path
    runtime: Path

    def options(self) -> list[str]:
        """``java``'s options beside the class path."""
        return [f"-Djava.library.path={self.library.parent}", f"-Dlibtvm.so.path={self.runtime}"]


def java_sources() -> list[Path]:
    """tvm4j's sources.  Raises :class:`UserError` if the installed TVM has none."""
    return sorted((_jvm_folder() / "core/src/main/java").rglob("*.java"))


def jni_source() -> Path:
    return _jvm_folder() / "native/src/main/native/org_apache_tvm_native_c_api.cc"


def _jvm_folder() -> Path:
    folder = tvm_root() / "jvm"
    if not (folder / "core/src/main/java/org/apache/tvm/Base.java").exists():
        raise UserError(
            "the installed TVM carries no Java sources",
            f"no {folder}/core",
            "pip install xtc-tvm-python-bindings==0.19.0.12, or a source tree of TVM",
        )
    return folder


def java_tool(name: str) -> str:
    """The path of ``java``, ``javac`` or ``keytool``.  Raises :class:`UserError` without a JDK."""
    path = shutil.which(name)
    if path is None:
        raise UserError(
            f"{name} is missing", "not on PATH", "apt-get install openjdk-17-jdk-headless (or docker/install/app.sh)"
        )
    return path


def javac(sources: Sequence[Path], classes: Path, class_path: Sequence[Path] = (), *options: str) -> None:
    """Compiles for Android's Java level unless ``options`` name another ``--release``."""
    level = [] if "--release" in options else ["--release", ANDROID_JAVA]
    where = ["-cp", ":".join(map(str, class_path))] if class_path else []
    classes.mkdir(parents=True, exist_ok=True)
    warnings = (
        options if any(option.startswith("-Xlint") for option in options) else ("-nowarn", "-Xlint:-options", *options)
    )
    words = [java_tool("javac"), "-encoding", "UTF-8", *level, *where, *warnings]
    run([*words, "-d", classes, *sources], "the Java sources do not compile")


def compile_classes(folder: Path) -> Path:
    """Compiles tvm4j's classes to ``folder/classes``, and its JNI header to ``folder/include``."""
    classes, headers = folder / "classes", folder / "include"
    javac(java_sources(), classes, (), "-h", str(headers))
    (headers / "org_apache_tvm_LibInfo.h").replace(headers / "org_apache_tvm_native_c_api.h")
    return classes


def compile_binding(folder: Path) -> Binding:
    """Builds the classes and the JNI library for a JVM on this machine, with the installed TVM's runtime.

    Raises :class:`UserError` without a compiler or runtime, or with the compiler's message.
    """
    from tvm._ffi.libinfo import find_lib_path

    classes, library = compile_classes(folder), folder / "libtvm4j.so"
    runtime = Path(find_lib_path("libtvm_runtime.so")[0])
    root, java = tvm_root(), Path(java_tool("javac")).resolve().parents[1] / "include"
    includes = [folder / "include", java, java / "linux", root / "include"]
    includes += [root / "3rdparty/dlpack/include", root / "3rdparty/dmlc-core/include"]
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise UserError("a C++ compiler is missing", "neither g++ nor c++ on PATH", "apt-get install g++")
    command = [compiler, "-std=c++17", "-O1", "-w", "-fPIC", "-shared", *(f"-I{path}" for path in includes)]
    command += ["-DDMLC_USE_LOGGING_LIBRARY=<tvm/runtime/logging.h>", "-o", str(library), str(jni_source())]
    command += [str(runtime), f"-Wl,-rpath,{runtime.parent}"]
    run(command, "tvm4j's JNI library does not build")
    return Binding(classes, library, runtime)


def compile_server(folder: Path) -> tuple[Binding, Path]:
    """Compiles the app's server for a JVM: the binding, and the folder of our own classes.

    The program is ``org.tvmcodl.rpc.jvm.Main``, with both folders on its class path.
    """
    binding, classes = compile_binding(folder / "tvm4j"), folder / "classes"
    javac(sorted(SERVE.glob("*.java")), classes, [binding.classes], "-Xlint:all,-options", "-Werror")
    javac(sorted(JVM.rglob("*.java")), classes, [binding.classes, classes], "--release", "11", "-Xlint:all", "-Werror")
    return binding, classes


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rpc_apps.android_rpc.tvm4j", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/tvm4j"))
    parser.add_argument("--server", action="store_true", help="the app's server for a JVM too")
    asked = parser.parse_args()
    binding = compile_server(asked.output)[0] if asked.server else compile_binding(asked.output)
    print(binding.classes.parent)


if __name__ == "__main__":
    main()
