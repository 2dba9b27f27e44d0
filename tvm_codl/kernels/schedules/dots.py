"""The instructions of :mod:`tvm_codl.kernels.tiles.dots` for TVM: a vector of int32 sums plus products of 8-bit values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tvm
from tvm import te, tir

from tvm_codl.kernels.schedules.opencl_dots import name_of
from tvm_codl.kernels.tiles.dots import Dot

_INTRINSICS = {
    ("vpdpbusd", 4): "llvm.x86.avx512.vpdpbusd.128",
    ("vpdpbusd", 8): "llvm.x86.avx512.vpdpbusd.256",
    ("vpdpbusd", 16): "llvm.x86.avx512.vpdpbusd.512",
    ("pmaddwd", 4): "llvm.x86.sse2.pmadd.wd",
    ("pmaddwd", 8): "llvm.x86.avx2.pmadd.wd",
    ("pmaddwd", 16): "llvm.x86.avx512.pmaddw.d.512",
    ("sdot", 4): "llvm.aarch64.neon.sdot.v4i32.v16i8",
    ("usdot", 4): "llvm.aarch64.neon.usdot.v4i32.v16i8",
}


@lru_cache
def dot_product(dot: Dot, lanes: int, on_gpu: bool) -> te.TensorIntrin | None:
    """``lanes`` sums of ``dot.step`` values times as many weights each; None where plain vectors are as good."""
    if dot.name == "multiply":
        return None
    values = te.placeholder((dot.step,), dot.reads, name="values")
    weights = te.placeholder((lanes, dot.step), "int8", name="weights")
    k = te.reduce_axis((0, dot.step), "k")
    sums = te.compute(
        (lanes,), lambda i: te.sum(values[k].astype("int32") * weights[i, k].astype("int32"), axis=k), name="sums"
    )

    def emit_call(inputs: Any, outputs: Any) -> Any:
        (x, w), (into,) = inputs, outputs
        pointers = (into.access_ptr("rw"), x.access_ptr("r"), w.access_ptr("r"))
        reset = into.vstore([0], tir.Broadcast(tir.const(0, "int32"), lanes))
        update = tir.Evaluate(tir.call_extern("int32", name_of(dot.reads, dot.step, lanes), *pointers))
        return tir.SeqStmt([reset, update]), reset, update

    def emit(inputs: Any, outputs: Any) -> Any:
        (x, w), (into,) = inputs, outputs
        vector = f"int32x{lanes}"

        def add(before: Any) -> Any:
            once = tir.call_intrin("int32", "tir.reinterpret", x.vload([0], f"{dot.reads}x{dot.step}"))
            all_values = tir.call_intrin(
                f"{dot.reads}x{lanes * dot.step}", "tir.reinterpret", tir.Broadcast(once, lanes)
            )
            all_weights = w.vload([0, 0], f"int8x{lanes * dot.step}")
            name = _INTRINSICS[dot.name, lanes]
            if dot.name == "pmaddwd":
                pairs = all_weights.astype(all_values.dtype)
                return before + _call(vector, name, all_values, pairs)
            return _call(vector, name, before, all_values, all_weights)

        zero = tir.Broadcast(tir.const(0, "int32"), lanes)
        return (into.vstore([0], add(zero)), into.vstore([0], zero), into.vstore([0], add(into.vload([0], vector))))

    def buffer(tensor: te.Tensor, strides: list[int], scope: str = "global") -> tir.Buffer:
        return tir.decl_buffer(
            tensor.shape, tensor.dtype, tensor.op.name, scope=scope, offset_factor=1, strides=strides
        )

    binds = {values: buffer(values, [1]), weights: buffer(weights, [dot.step, 1]), sums: buffer(sums, [1], "local")}
    return te.decl_tensor_intrin(sums.op, emit_call if on_gpu else emit, binds=binds)


def _call(vector: str, name: str, *args: Any) -> Any:
    return tir.call_llvm_pure_intrin(vector, name, tvm.tir.const(len(args), "uint32"), *args)
