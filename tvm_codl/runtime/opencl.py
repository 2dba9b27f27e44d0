"""Which OpenCL the reference phone uses, and the environment that its processes need for it.

The first that builds and runs a kernel: a system OpenCL, pip's PoCL, pip's PoCL patched for a processor that it does not
know (:mod:`tvm_codl.runtime.pocl`).  The choice is kept per machine and library.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from tvm_codl.errors import DeviceError
from tvm_codl.paths import cache_dir
from tvm_codl.runtime import builtins, pocl

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
#: A driver that crashes in a thread of its own may hang its process.
PROBE_S = 45


class OpenCL(msgspec.Struct, frozen=True):
    """A usable OpenCL: ``variables`` must be set before the library is first loaded."""

    kind: str
    device: str
    version: str
    variables: dict[str, str]


def find() -> OpenCL:
    """The OpenCL to use on this machine.  Raises :class:`DeviceError` with every candidate's own words if none works."""
    if os.environ.get("CODL_OPENCL_LIBRARY"):
        library = os.environ["CODL_OPENCL_LIBRARY"]
        kept = {k: v for k, v in os.environ.items() if k.startswith(("CODL_OPENCL", "OCL_ICD", "POCL_", "PYOPENCL"))}
        result = _probe(library, kept)
        if result["ok"]:
            return OpenCL("named by CODL_OPENCL_LIBRARY", str(result["device"]), str(result["version"]), kept)
        raise DeviceError(f"CODL_OPENCL_LIBRARY={library} does not run a kernel", str(result["why"]))
    complaints: list[str] = []
    for kind, locate in (
        ("system OpenCL", _locate_system),
        ("pip's PoCL", lambda: None if pocl.is_misnamed() else _locate_packaged(patched=False)),
        ("pip's PoCL, patched for this processor", lambda: _locate_packaged(patched=True)),
    ):
        try:
            if (place := locate()) is None:
                continue
        except (OSError, ValueError) as error:
            complaints.append(f"{kind}: {error}")
            continue
        variables = _variables(*place)
        result = _probe(variables["CODL_OPENCL_LIBRARY"], variables)
        if result["ok"]:
            return OpenCL(kind, str(result["device"]), str(result["version"]), variables)
        complaints.append(f"{kind}: {result['why']}")
    raise DeviceError(
        "no OpenCL on this machine builds and runs a kernel",
        "; ".join(complaints) or "neither a system OpenCL nor pip's PoCL is installed",
        "pip install pyopencl pocl-binary-distribution   (or, as root: apt-get install pocl-opencl-icd)",
    )


def environment() -> dict[str, str]:
    """The variables of :func:`find`; the result is kept in the cache folder."""
    if os.environ.get("CODL_OPENCL_LIBRARY"):
        return find().variables
    kept = cache_dir() / "opencl.json"
    key = _machine_key()
    try:
        saved = json.loads(kept.read_text())
        if saved["key"] == key and all(Path(p).exists() for p in saved["paths"]):
            return dict(saved["variables"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no usable result is kept
    chosen = find()
    paths = [v for v in chosen.variables.values() if v.startswith("/")]
    pocl.replace_file(kept, json.dumps({"key": key, "variables": chosen.variables, "paths": paths}).encode())
    return chosen.variables


def _machine_key() -> str:
    """Changes with the processor, the system's OpenCL, the installed PoCL and what its copy declares."""
    vendors = sorted(p.name for p in SYSTEM_VENDORS.glob("*.icd")) if SYSTEM_VENDORS.is_dir() else []
    of_system, of_pip = ctypes.util.find_library("OpenCL"), str(pocl.packaged())
    return json.dumps([pocl.cpuinfo("model name"), vendors, of_system, of_pip, builtins.DECLARED])


def _probe(library: str, variables: dict[str, str]) -> dict[str, object]:
    command = [sys.executable, "-m", "tvm_codl.runtime.opencl_device", library]
    try:
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=PROBE_S, check=False
        )
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"ok": False, "why": f"the probe of {library} did not answer ({type(error).__name__})"}


def _variables(library: str, vendors: Path) -> dict[str, str]:
    kernels = cache_dir() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    return {
        "CODL_OPENCL_LIBRARY": library,
        "OCL_ICD_VENDORS": str(vendors),
        # pip's OpenCL loader also looks here, even if it is not set; an empty folder hides a second PoCL from it.
        "PYOPENCL_HOME": str(kernels),
        "POCL_CACHE_DIR": str(kernels),
        "CODL_OPENCL_CALLS": "1",
    }


def _locate_system() -> tuple[str, Path] | None:
    """The library and its folder of vendors."""
    name = ctypes.util.find_library("OpenCL")
    if name is None or not SYSTEM_VENDORS.is_dir() or not any(SYSTEM_VENDORS.glob("*.icd")):
        return None
    return name, SYSTEM_VENDORS


def _locate_packaged(patched: bool) -> tuple[str, Path] | None:
    """pip's loader and a folder of vendors that names a copy of pip's PoCL alone."""
    library, loader = pocl.packaged(), pocl.packaged_loader()
    if library is None or loader is None:
        return None
    library = pocl.own_copy(library, cache_dir(), patched)
    vendors = cache_dir() / "vendors" / library.parent.parent.parent.name
    pocl.replace_file(vendors / "pocl.icd", f"{library}\n".encode())
    return str(loader), vendors
