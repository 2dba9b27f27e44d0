"""pip's PoCL: a private copy that reads a short header, and that is patched for processors newer than itself.

``pocl-binary-distribution`` carries LLVM 14.  On a processor that LLVM 14 does not know, it says ``generic``, which its own
clang rejects for x86 ("unknown target CPU 'generic'"), so no kernel builds.  And it calls every AMD processor of family 25
``znver3``: Zen 4 has AVX-512, by which PoCL picks its kernel library, but code for Zen 3 passes vectors in other registers
than that library, and kernels crash.  The remedy is a copy of the library in which these names are replaced by a processor
whose instructions this machine has.  And it reads all of OpenCL's declarations before each kernel, which takes longer than
the kernel: the copy's header has those that a kernel calls (:mod:`tvm_codl.runtime.builtins`).  The installed package stays as
it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from tvm_codl.runtime import builtins

FALLBACK = b"\x00 generic\x00"
WITHOUT_AVX512 = b"\x00znver3\x00"
# The name must match the variant of the kernel library that PoCL picks by the same features.
NAMES = (
    (b"skx", {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}),
    (b"haswell", {"avx2", "fma", "bmi2", "f16c"}),
)


def packaged() -> Path | None:
    """The PoCL library that pip installed, if any."""
    return _find("libpocl*.so*", "pyopencl", "pocl_binary_distribution")


def packaged_loader() -> Path | None:
    """The OpenCL ICD loader that pip's ``pyopencl`` carries."""
    return _find("libOpenCL*.so*", "pyopencl")


def _find(pattern: str, *packages: str) -> Path | None:
    for package in packages:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if paths := sorted(Path(folder, ".libs").glob(pattern)):
                return paths[0]
    return None


def host_features() -> set[str]:
    """The instruction-set flags that Linux reports for this machine's processor."""
    return set(cpuinfo("flags").split())


def is_misnamed() -> bool:
    """Whether PoCL surely takes this processor for another one: an AMD with AVX-512.  Its LLVM may then not end."""
    return cpuinfo("vendor_id") == "AuthenticAMD" and "avx512f" in host_features()


def cpuinfo(field: str) -> str:
    """What Linux says of the first core; empty where it does not tell."""
    lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == field), "")


def processor_name(features: set[str]) -> bytes:
    """A processor name that LLVM 14 knows and whose instructions are among ``features``."""
    return next((name for name, needed in NAMES if needed <= features), b"x86-64")


def own_copy(library: Path, cache: Path, patched: bool) -> Path:
    """A copy of ``library`` under ``cache`` that reads a short header, and if ``patched`` names a known processor; kept for
    the next call.

    Raises ``ValueError`` where the library does not hold each name to replace exactly once.
    """
    content, replacements = library.read_bytes(), _replacements() if patched else {}
    for old in replacements:
        if content.count(old) != 1:
            raise ValueError(f"{library} holds the processor name {old!r} {content.count(old)} times, not once")
    package = library.parent.parent.parent / "pocl_binary_distribution"
    shown = repr((sorted(replacements.items()), builtins.DECLARED, str(package))).encode()
    key = hashlib.sha256(content[:4096] + str(len(content)).encode() + shown).hexdigest()[:12]
    # PoCL finds its kernel library and its headers, and the loader its hwloc, relative to the library's own folder.
    home = cache / f"pocl-{key}"
    copy = home / "pyopencl" / ".libs" / library.name
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".pocl-") as folder:
            fresh = Path(folder, "home")
            shutil.copytree(package, fresh / package.name, copy_function=os.symlink)
            for header in fresh.rglob("opencl-c.h"):
                replace_file(header, builtins.shorten(header.read_text()).encode())
            fresh_copy = fresh / copy.relative_to(home)
            fresh_copy.parent.mkdir(parents=True)
            if replacements:
                for old, new in replacements.items():
                    content = content.replace(old, new.ljust(len(old), b"\x00"))
                fresh_copy.write_bytes(content)
            else:
                fresh_copy.symlink_to(library)
            with contextlib.suppress(OSError):  # another process was first
                fresh.rename(home)
    return copy


def _replacements() -> dict[bytes, bytes]:
    """What the library calls the processor, and what it shall."""
    features = host_features()
    name = processor_name(features)
    return {FALLBACK: b"\x00 " + name, **({WITHOUT_AVX512: b"\x00" + name} if "avx512f" in features else {})}


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file, and its folder, so that no other process sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as partial:
        partial.write(content)
    os.replace(partial.name, path)
