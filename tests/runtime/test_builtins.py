"""PoCL's short header declares what TVM's code for OpenCL calls."""

from __future__ import annotations

import tvm

from tvm_codl.kernels.opencl_functions import FUNCTIONS
from tvm_codl.runtime import builtins


def lowered() -> set[str]:
    """The functions that TVM puts in place of its own."""
    found = set()
    for name in tvm.ir.Op.list_op_names():
        op = tvm.ir.Op.get(name)
        lower = op.get_attr("opencl.FLowerIntrinsic") or op.get_attr("default.FLowerIntrinsic")
        if not name.startswith("tir.") or lower is None or "warp" in name:  # PoCL has no warps
            continue
        if name.startswith("tir.codl_"):  # ours, whose code calls nothing
            continue
        dtype = "uint32" if name in ("tir.popcount", "tir.clz") else "float32"
        x = tvm.tir.Var("x", dtype)
        call = lower(tvm.tir.call_intrin(dtype, name, x, x))
        tvm.tir.stmt_functor.post_order_visit(
            tvm.tir.Evaluate(call),
            lambda each: (
                found.add(each.args[0].value)
                if isinstance(each, tvm.tir.Call) and each.op.name in ("tir.call_extern", "tir.call_pure_extern")
                else None
            ),
        )
    return found


def test_what_tvm_calls_is_declared() -> None:
    called = lowered()
    assert {"exp", "atan2", "popcount", "rint"} <= called
    unknown = {"ldexpf"}  # which OpenCL does not have
    assert called - unknown <= builtins.NAMES
    assert set(FUNCTIONS.values()) <= builtins.NAMES
