"""The emulated arm64 phone: the native server, cross-compiled, under qemu, on its own file system where it has OpenCL."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.phone.servers import Server
from tvm_codl.paths import cache_dir
from tvm_codl.runtime.platforms import LINUX_TRIPLE, platform

#: The phone's file system, with an OpenCL that PoCL serves: docker/install/arm64_opencl.sh unpacks it.
FILES = Path(os.environ.get("CODL_ARM64_SYSROOT") or cache_dir() / "arm64-sysroot")
LIBRARIES = FILES / "usr/lib" / LINUX_TRIPLE
STOP_S = 20.0


def missing() -> str:
    """Why there can be no emulated phone here; empty where there can."""
    lacking = [tool for tool in (f"{LINUX_TRIPLE}-g++", "qemu-aarch64-static") if shutil.which(tool) is None]
    return f"not installed: {', '.join(lacking)}; docker/install/arm64.sh installs them" if lacking else ""


def opencl_missing() -> str:
    """Why an emulated phone has no OpenCL here; empty where it has."""
    if why := missing():
        return why
    there = (FILES / ".complete").exists()
    return "" if there else f"no OpenCL for arm64: docker/install/arm64_opencl.sh {FILES} unpacks it"


def environment() -> dict[str, str]:
    """The variables of the phone's processes."""
    plain = {"TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0", "CODL_PHONE_NAME": "emulated arm64 phone"}
    if opencl_missing():
        return plain
    kernels = cache_dir() / "arm64-kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    return {
        **plain,
        "CODL_OPENCL_LIBRARY": str(LIBRARIES / "libOpenCL.so"),
        "OCL_ICD_VENDORS": str(FILES / "etc/OpenCL/vendors"),
        "POCL_CACHE_DIR": str(kernels),
        "POCL_MAX_PTHREAD_COUNT": "1",
        "CODL_GPU_CORES": str(max(os.sched_getaffinity(0))),
        "COMPILER_PATH": str(FILES / "linker"),
    }


@contextlib.contextmanager
def emulated_phone(folder: Path, variables: dict[str, str] | None = None, **options: object) -> Iterator[Server]:
    """The native server under qemu, with the options of its command line; ``variables`` are added to its environment."""
    from tvm_codl.runtime.server_build import compile_server

    program, (emulator, *root) = compile_server("linux-arm64"), platform("linux-arm64").run
    files = root if opencl_missing() else ["-L", str(FILES)]
    line = [emulator, *files, str(program)]
    for name, value in options.items():
        line += [f"--{name.replace('_', '-')}", str(value)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CODL_", "OCL_", "POCL_"))}
    log = folder / "emulated.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            line, env={**kept, **environment(), "TMPDIR": str(folder), **(variables or {})},
            stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        words = process.stdout.readline()
        assert words, log.read_text()
        about = json.loads(words)
        assert "error" not in about, about
        yield Server(process, about, log)
    finally:
        process.terminate()
        process.wait(STOP_S)
