"""Functions of OpenCL that TVM's code for it gets wrong, by OpenCL's own names.

TVM writes C's names (``acosf``), which OpenCL does not have, and ``round`` for rounding to even.
"""

from __future__ import annotations

import tvm

#: By TVM's name, OpenCL's.
FUNCTIONS = {
    **{name: name for name in ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "hypot")},
    **{name: name for name in ("log1p", "nextafter", "tan")},
    "nearbyint": "rint",
}


def _register(name: str, own: str) -> None:
    def lower(call: tvm.tir.Call) -> tvm.tir.PrimExpr:
        return tvm.tir.call_pure_extern(call.dtype, own, *call.args)

    tvm.ir.register_intrin_lowering(f"tir.{name}", target="opencl", f=lower, level=99)


for _name, _own in FUNCTIONS.items():
    _register(_name, _own)
