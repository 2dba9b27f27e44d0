"""PoCL's short header is its own, less what no kernel needs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tvm_codl.runtime import builtins, pocl

HEADER = """#define __ovld __attribute__((overloadable))
// exp, of all types
float __ovld __cnfn exp(float);
float __ovld __cnfn sincos(float x, float *cosval);
int4 __ovld __cnfn convert_int4(float4);
int4 __ovld __cnfn convert_int4_sat_rte(float4);
#ifdef cl_khr_fp64
double __ovld __cnfn exp(double);
#endif
"""


def declared(header: str, *options: str) -> list[str]:
    """The functions that a compiler sees in ``header``."""
    text = header.replace("#define __ovld __attribute__((overloadable))", "")
    command = ["g++", "-E", "-P", "-x", "c++", "-", "-Dcl_khr_fp64", *options]
    seen = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return [line.split("(")[0].split()[-1] for line in seen.splitlines() if "(" in line]


def test_only_declarations_that_no_kernel_needs_go() -> None:
    short = builtins.shorten(HEADER)
    assert declared(short) == [name for name in declared(HEADER) if name not in ("sincos", "convert_int4_sat_rte")]
    assert declared(short) == ["exp", "convert_int4", "exp"]


def test_a_build_that_names_what_it_calls_sees_that_alone() -> None:
    short = builtins.shorten(HEADER)
    assert declared(short, "-DCODL_CALLS", "-DCODL_CALLS_exp", "-DCODL_CALLS_main") == ["exp", "exp"]
    assert declared(short, "-DCODL_CALLS") == []


@pytest.mark.skipif(pocl.packaged() is None, reason="pip's PoCL is not installed")
def test_pocls_own_header_has_every_name() -> None:
    """And its form is the one that is known: most of it goes, and but for the conditions ahead of functions no directive
    changes."""
    library = pocl.packaged()
    assert library is not None
    folder = library.parents[2] / "pocl_binary_distribution"
    header = next(Path(folder).rglob("opencl-c.h")).read_text()
    short = builtins.shorten(header)
    assert all(f" {name}(" in short for name in builtins.NAMES)
    unconditional = re.sub(r"#if !defined\(CODL_CALLS\) .*\n((?:[^#].*\n)*)#endif\n", r"\1", short)
    assert len(unconditional) < 0.4 * len(header)
    directives = [line for line in header.splitlines() if line.startswith("#")]
    assert [line for line in unconditional.splitlines() if line.startswith("#")] == directives
