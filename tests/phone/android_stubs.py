"""Linking and running for Android where there is no NDK: libraries of Android's names, with no Android behind them.

To link against, ``libc.so`` and ``libm.so`` whose functions have no bodies; to run with under glibc, two of the same names
and symbol versions that jump to glibc's functions.  What is linked is what an NDK's linker would make of a model: it
imports these functions alone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tvm_codl.runtime.platforms import ANDROID_TRIPLE, LINUX_TRIPLE

#: What LLVM's code for a model may call.
MATH = tuple(
    f"{name}{kind}"
    for name in ("exp", "exp2", "log", "log2", "pow", "tanh", "erf", "sin", "cos", "tan", "atan", "fmod", "ceil", "floor",
                 "round", "trunc", "rint", "nearbyint", "sqrt", "expm1", "log1p", "fma", "fmin", "fmax")
    for kind in ("", "f")
)  # fmt: skip
MEMORY = ("memcpy", "memmove", "memset", "memcmp", "malloc", "free", "abort", "__cxa_atexit", "__cxa_finalize")
FUNCTIONS = {"libm": MATH, "libc": MEMORY}
GLIBC = {"libm": "libm.so.6", "libc": "libc.so.6"}
#: The version that Android's libraries give their symbols.
VERSION = "LIBC"


def missing() -> str:
    """What of the tools is not installed; empty where all is."""
    lacking = [tool for tool in ("clang++", "ld.lld", f"{LINUX_TRIPLE}-gcc") if shutil.which(tool) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def compiler(folder: Path) -> Path:
    """A C++ compiler for Android in ``folder``, named as the NDK's is."""
    stubs = folder / "stubs"
    stubs.mkdir(parents=True, exist_ok=True)
    clang = ["clang", f"--target={ANDROID_TRIPLE}", "-fuse-ld=lld", "-nostdlib", "-shared"]
    for name, functions in FUNCTIONS.items():
        source, script = stubs / f"{name}.s", stubs / f"{name}.map"
        source.write_text("".join(_function(f, "ret") for f in functions))
        script.write_text(_versions(functions))
        link = [f"-Wl,-soname,{name}.so", f"-Wl,--version-script={script}", "-o", str(stubs / f"{name}.so")]
        subprocess.run([*clang, *link, str(source)], check=True, capture_output=True)
    path = folder / f"{ANDROID_TRIPLE}-clang++"
    path.write_text(
        f'#!/bin/sh\nexec clang++ --target={ANDROID_TRIPLE} -fuse-ld=lld -nostdlib -L{stubs} "$@" -lm -lc\n'
    )
    path.chmod(0o755)
    return path


def shims(folder: Path) -> Path:
    """A folder with ``libc.so`` and ``libm.so`` for the emulated phone's ``LD_LIBRARY_PATH``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, functions in FUNCTIONS.items():
        known = _exported(name, functions)
        jumps = [f"adrp x16, slots+{8 * i}\n ldr x16, [x16, :lo12:slots+{8 * i}]\n br x16" for i in range(len(known))]
        (folder / f"{name}.s").write_text(
            "".join(_function(f, jump) for f, jump in zip(known, jumps, strict=True))
            + f".bss\n.balign 8\n.globl slots\n.hidden slots\nslots: .skip {8 * len(known)}\n"
        )
        (folder / f"{name}.map").write_text(_versions(known))
        (folder / f"{name}.c").write_text(_filling(GLIBC[name], known))
        subprocess.run(
            [f"{LINUX_TRIPLE}-gcc", "-shared", "-fPIC", "-nostartfiles", f"-Wl,-soname,{name}.so", "-Wl,-Bsymbolic",
             f"-Wl,--version-script={folder / f'{name}.map'}", "-o", str(folder / f"{name}.so"),
             str(folder / f"{name}.s"), str(folder / f"{name}.c"), "-ldl"],
            check=True, capture_output=True,
        )  # fmt: skip
    return folder


def _exported(name: str, functions: Iterable[str]) -> list[str]:
    """Those of ``functions`` that the emulated phone's library has."""
    library = Path(f"/usr/{LINUX_TRIPLE}/lib") / GLIBC[name]
    listed = subprocess.run(["readelf", "-W", "--dyn-syms", str(library)], check=True, capture_output=True, text=True)
    there = set(re.findall(r"\s(\w+)@", listed.stdout))
    return [f for f in functions if f in there]


def _function(name: str, body: str) -> str:
    return f".text\n.globl {name}\n.type {name}, %function\n{name}:\n {body}\n.size {name}, .-{name}\n"


def _versions(functions: Iterable[str]) -> str:
    return f"{VERSION} {{ global: {' '.join(f + ';' for f in functions)} local: *; }};\n"


def _filling(library: str, functions: Iterable[str]) -> str:
    names = ", ".join(f'"{f}"' for f in functions)
    return f"""#include <dlfcn.h>
extern void* slots[] __attribute__((visibility("hidden")));
static const char* const names[] = {{{names}}};
__attribute__((constructor)) static void fill(void) {{
  void* library = dlopen("{library}", RTLD_NOW);
  for (unsigned i = 0; i < sizeof names / sizeof *names; ++i) slots[i] = dlsym(library, names[i]);
}}
"""
