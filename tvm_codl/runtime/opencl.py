"""Which OpenCL the reference phone uses, and the environment that its processes need for it.

A system OpenCL that builds and runs a kernel is preferred; else pip's PoCL; else pip's PoCL, mended for a processor
that it does not know (:mod:`tvm_codl.runtime.pocl`).  What was found is remembered per machine and library.
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
from tvm_codl.runtime import pocl

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
#: A driver that crashes in a thread of its own may hang the process that asks.
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
    for candidate in (_system, _packaged, _mended):
        found = candidate(complaints)
        if found is not None:
            return found
    raise DeviceError(
        "no OpenCL on this machine builds and runs a kernel",
        "; ".join(complaints) or "neither a system OpenCL nor pip's PoCL is installed",
        "pip install pyopencl pocl-binary-distribution   (or, as root: apt-get install pocl-opencl-icd)",
    )


def environment() -> dict[str, str]:
    """The variables of :func:`find`; the search is done once per machine and kept in the cache folder."""
    if os.environ.get("CODL_OPENCL_LIBRARY"):
        return find().variables
    kept = cache_dir() / "opencl.json"
    key = _machine_key()
    try:
        saved = json.loads(kept.read_text())
        if saved["key"] == key and all(Path(p).exists() for p in saved["paths"]):
            return dict(saved["variables"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing usable is kept: search
    found = find()
    paths = [v for v in found.variables.values() if v.startswith("/")]
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps({"key": key, "variables": found.variables, "paths": paths}))
    os.replace(partial, kept)
    return found.variables


def _machine_key() -> str:
    """Changes when the processor, the system's OpenCL or the installed PoCL does."""
    vendors = sorted(p.name for p in SYSTEM_VENDORS.glob("*.icd")) if SYSTEM_VENDORS.is_dir() else []
    model = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), "")
    return json.dumps([model, vendors, ctypes.util.find_library("OpenCL"), str(pocl.packaged())])


def _probe(library: str, variables: dict[str, str]) -> dict[str, object]:
    command = [sys.executable, "-m", "tvm_codl.runtime.opencl_probe", library]
    try:
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=PROBE_S, check=False
        )
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"ok": False, "why": f"the probe of {library} did not answer ({type(error).__name__})"}


def _try(kind: str, library: Path | str, vendors: Path, complaints: list[str]) -> OpenCL | None:
    kernels = cache_dir() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    variables = {
        "CODL_OPENCL_LIBRARY": str(library),
        "OCL_ICD_VENDORS": str(vendors),
        # pip's OpenCL loader also looks here, without a check that it is set; a folder of its own keeps it from
        # finding a second PoCL.
        "PYOPENCL_HOME": str(kernels),
        "POCL_CACHE_DIR": str(kernels),
    }
    result = _probe(str(library), variables)
    if result["ok"]:
        return OpenCL(kind, str(result["device"]), str(result["version"]), variables)
    complaints.append(f"{kind}: {result['why']}")
    return None


def _system(complaints: list[str]) -> OpenCL | None:
    name = ctypes.util.find_library("OpenCL")
    if name is None or not SYSTEM_VENDORS.is_dir() or not any(SYSTEM_VENDORS.glob("*.icd")):
        return None
    return _try("system OpenCL", name, SYSTEM_VENDORS, complaints)


def _vendors(library: Path) -> Path:
    """A folder with one ICD file that names ``library``."""
    folder = cache_dir() / "vendors" / library.parent.parent.parent.name
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{os.getpid()}"
    partial.write_text(f"{library}\n")
    os.replace(partial, folder / "pocl.icd")
    return folder


def _packaged(complaints: list[str]) -> OpenCL | None:
    library, loader = pocl.packaged(), pocl.packaged_loader()
    if library is None or loader is None:
        return None
    return _try("pip's PoCL", loader, _vendors(library), complaints)


def _mended(complaints: list[str]) -> OpenCL | None:
    library, loader = pocl.packaged(), pocl.packaged_loader()
    if library is None or loader is None:
        return None
    try:
        copy = pocl.mended(library, cache_dir())
    except (OSError, ValueError) as error:
        complaints.append(f"mending pip's PoCL: {error}")
        return None
    return _try("pip's PoCL, mended for this processor", loader, _vendors(copy), complaints)
