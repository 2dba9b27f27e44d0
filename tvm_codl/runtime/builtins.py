"""The built-in functions of OpenCL C that generated kernels call, and a header of these alone.

PoCL 3.0 reads a header of 14,000 declarations before each kernel: 0.2 s to compile one, 0.07 s to find it in its cache.
The header's copy leaves out the functions that no kernel needs, and in each kernel's build those that it does not call.
"""

from __future__ import annotations

import itertools
import re

#: All that TVM's generator of OpenCL C and this project's schedules name; conversions are told by their form.
NAMES = frozenset(
    [
        "get_work_dim",
        "get_global_size",
        "get_global_id",
        "get_local_size",
        "get_local_id",
        "get_num_groups",
        "get_group_id",
        "get_global_offset",
        "barrier",
        "mem_fence",
        "vload2",
        "vload3",
        "vload4",
        "vload8",
        "vload16",
        "vstore2",
        "vstore3",
        "vstore4",
        "vstore8",
        "vstore16",
        "vload_half",
        "vload_half2",
        "vload_half3",
        "vload_half4",
        "vload_half8",
        "vload_half16",
        "vstore_half",
        "vstore_half2",
        "vstore_half3",
        "vstore_half4",
        "vstore_half8",
        "vstore_half16",
        "read_imagef",
        "read_imageh",
        "read_imagei",
        "read_imageui",
        "write_imagef",
        "write_imageh",
        "write_imagei",
        "write_imageui",
        "atomic_add",
        "atomic_sub",
        "atomic_xchg",
        "atomic_inc",
        "atomic_dec",
        "atomic_cmpxchg",
        "atomic_min",
        "atomic_max",
        "atom_add",
        "atom_sub",
        "atom_xchg",
        "atom_inc",
        "atom_dec",
        "atom_cmpxchg",
        "atom_min",
        "atom_max",
        "abs",
        "min",
        "max",
        "clamp",
        "mad",
        "fma",
        "mad24",
        "mul24",
        "mul_hi",
        "dot",
        "popcount",
        "clz",
        "select",
        "bitselect",
        "any",
        "all",
        "floor",
        "ceil",
        "round",
        "rint",
        "trunc",
        "fabs",
        "fmin",
        "fmax",
        "fmod",
        "remainder",
        "copysign",
        "sign",
        "nextafter",
        "ldexp",
        "isnan",
        "isinf",
        "isfinite",
        "isnormal",
        "signbit",
        "exp",
        "exp2",
        "exp10",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "rsqrt",
        "cbrt",
        "pow",
        "pown",
        "powr",
        "hypot",
        "erf",
        "erfc",
        "tgamma",
        "lgamma",
        "sin",
        "sinh",
        "cos",
        "cosh",
        "tan",
        "tanh",
        "asin",
        "asinh",
        "acos",
        "acosh",
        "atan",
        "atanh",
        "atan2",
        "native_exp",
        "native_exp2",
        "native_log",
        "native_log2",
        "native_sqrt",
        "native_rsqrt",
        "native_recip",
        "native_divide",
        "native_powr",
        "native_sin",
        "native_cos",
        "native_tan",
    ]
)
#: A build that defines this has only the functions whose names it defines behind it declared (native/opencl/called_names.h).
GUARD = "CODL_CALLS"
#: What a copy of the header follows from, beside the header.
DECLARED = (GUARD, *sorted(NAMES))
_CONVERSION = re.compile(r"convert_[a-z]+\d*")
_DECLARATION = re.compile(r"[\w\s*]*\b(\w+)\(.*\);\s*")


def shorten(header: str) -> str:
    """``header`` without the declarations of functions that no generated kernel calls, the others under :data:`GUARD`."""
    kept: list[str] = []
    for name, lines in itertools.groupby(header.splitlines(keepends=True), _declared):
        if not name:
            kept += lines
        elif name in NAMES or _CONVERSION.fullmatch(name):
            kept += [f"#if !defined({GUARD}) || defined({GUARD}_{name})\n", *lines, "#endif\n"]
    return "".join(kept)


def _declared(line: str) -> str:
    """The function that ``line`` declares, if any."""
    declaration = _DECLARATION.fullmatch(line)
    return declaration[1] if declaration else ""
