"""PoCL's short header is its own, less what no kernel needs."""

from __future__ import annotations

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


def test_only_declarations_that_no_kernel_needs_go() -> None:
    kept = builtins.shorten(HEADER).splitlines()
    gone = [line for line in HEADER.splitlines() if line not in kept]
    assert [line.split("(")[0].split()[-1] for line in gone] == ["sincos", "convert_int4_sat_rte"]


@pytest.mark.skipif(pocl.packaged() is None, reason="pip's PoCL is not installed")
def test_pocls_own_header_has_every_name() -> None:
    """And its form is the one that is known: most of it goes."""
    library = pocl.packaged()
    assert library is not None
    folder = library.parents[2] / "pocl_binary_distribution"
    header = next(Path(folder).rglob("opencl-c.h")).read_text()
    short = builtins.shorten(header)
    assert all(f" {name}(" in short for name in builtins.NAMES)
    assert len(short) < 0.4 * len(header)
    directives = [line for line in header.splitlines() if line.startswith("#")]
    assert [line for line in short.splitlines() if line.startswith("#")] == directives
