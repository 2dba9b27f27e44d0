"""The pass that makes the GPU compute in float16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm
import tvm.relay.transform.mixed_precision as mixed  # registers TVM's own lists of operators
from tvm import relay

from tvm_codl.relay.calls import is_call
from tvm_codl.relay.partition import PROCESSOR
from tvm_codl.relay.walk import in_order

CONVERSION = "FTVMMixedPrecisionConversionType"
#: TVM's own level of registration, at which it is put back.
LEVEL = 10


def GpuFloat16() -> tvm.transform.Pass:
    """Rewrites the GPU's regions of a partitioned module: float16 within, float32 at both ends.

    TVM's lists (``tvm.relay.transform.mixed_precision``) say which operators compute in float16; convolutions and matrix
    products add up in float32, so that sums of thousands keep their digits.  Weights become float16 constants.  Shared
    tensors, the CPU's regions and ``@main`` keep float32, and so do regions that quantise: their roundings need it.
    """

    def rewrite(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        functions = dict(mod.functions.items())
        for variable, function in functions.items():
            attrs = function.attrs
            on_gpu = attrs and PROCESSOR in attrs and str(attrs[PROCESSOR]) == "gpu"
            if on_gpu and not any(is_call(expr, "reinterpret") for expr in in_order(function.body)):
                functions[variable] = _half(function)
        # The region's variables stay the same, since their types do.
        return relay.transform.InferType()(tvm.IRModule(functions))

    return tvm.transform.module_pass(rewrite, opt_level=0, name="GpuFloat16")


def _half(function: relay.Function) -> relay.Function:
    mod = tvm.IRModule.from_expr(relay.Function(function.params, function.body, function.ret_type))
    passes = [relay.transform.InferType(), relay.transform.ToMixedPrecision("float16", 2), relay.transform.InferType()]
    with _sums_in_float32(), tvm.transform.PassContext(opt_level=3):
        half = tvm.transform.Sequential(passes)(mod)["main"]
    ends = relay.Function(half.params, _typed_as(half.body, function.ret_type))
    # Weights that are cast become weights of that type.
    fold = [relay.transform.InferType(), relay.transform.FoldConstant(), relay.transform.InferType()]
    done = tvm.transform.Sequential(fold)(tvm.IRModule.from_expr(ends))["main"]
    return done.with_attr({name: function.attrs[name] for name in function.attrs.keys()})  # noqa: SIM118 - no dict


def _typed_as(expr: relay.Expr, kind: relay.Type) -> relay.Expr:
    """``expr``, cast where its type is not ``kind``."""
    if tvm.ir.structural_equal(expr.checked_type, kind):
        return expr
    if isinstance(kind, relay.TupleType):
        fields = list(expr.fields) if isinstance(expr, relay.Tuple) else [expr[i] for i in range(len(kind.fields))]
        types = expr.checked_type.fields
        return relay.Tuple([_cast(f, t, k) for f, t, k in zip(fields, types, kind.fields, strict=True)])
    return _cast(expr, expr.checked_type, kind)


def _cast(expr: relay.Expr, kind: relay.Type, wanted: relay.Type) -> relay.Expr:
    return expr if kind.dtype == wanted.dtype else relay.cast(expr, wanted.dtype)


def _summing(call: relay.Call, precision: str) -> list[Any]:
    """(category, type to add up in, type of the result), in TVM's format."""
    return [mixed.MIXED_PRECISION_ALWAYS, "float32", precision]


@contextmanager
def _sums_in_float32() -> Iterator[None]:
    """Changes TVM's table, which lets sums be float16 too.  There is one for the process, so it is put back."""
    before = {name: tvm.ir.Op.get(name).get_attr(CONVERSION) for name in mixed.DEFAULT_ALWAYS_LIST}
    try:
        for name in before:
            _set(name, _summing)
        yield
    finally:
        for name, value in before.items():
            _set(name, value)


def _set(name: str, value: Any) -> None:
    operator = tvm.ir.Op.get(name)
    operator.reset_attr(CONVERSION)
    operator.set_attr(CONVERSION, value, LEVEL)
