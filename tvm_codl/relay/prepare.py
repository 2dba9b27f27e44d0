"""From a Relay network to the prepared module: simplified, and each operator one primitive function."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relay

from tvm_codl.relay.walk import rewrite

PASS_CONFIG = {"tir.disable_cse_tir": True}


def prepare(mod: tvm.IRModule) -> tvm.IRModule:
    """The module whose primitive functions are the network's operators.

    Weights must be constants already.  Scales are folded backward only, into the weights of the convolution that
    makes them: forward, Relay also folds scales that are computed (squeeze-and-excitation), and the weights would
    no longer be constant.
    """
    passes = relay.transform
    with tvm.transform.PassContext(opt_level=3, config=PASS_CONFIG):
        mod = tvm.transform.Sequential(
            [
                passes.InferType(),
                passes.SimplifyInference(),
                passes.FoldConstant(),
                passes.BackwardFoldScaleAxis(),
                passes.FoldConstant(),
                PlainTensors(),
                passes.InferType(),
                passes.SimplifyExpr(),
                passes.FoldConstant(),
                passes.EliminateCommonSubexpr(),
                passes.DeadCodeElimination(),
                passes.FuseOps(fuse_opt_level=2),
                passes.InferType(),
            ]
        )(mod)
    return mod


@relay.transform.function_pass(opt_level=0)
class PlainTensors:
    """Takes out what would hide a tensor from the split rules.

    Each part of a ``split`` becomes a slice of its own: a slice can be fused, and cut, where a tuple can not.  Constants
    that Relay writes as operators (``zeros``, ``ones_like``, ...) become constants, which a piece can slice.
    """

    def transform_function(
        self, function: relay.Function, mod: tvm.IRModule, _: tvm.transform.PassContext
    ) -> relay.Function:
        body = rewrite(function.body, _plain_tensor)
        return relay.Function(function.params, body, None, function.type_params, function.attrs)


_FILLERS = {"zeros": 0, "ones": 1, "zeros_like": 0, "ones_like": 1, "full": None, "full_like": None}


def _plain_tensor(expr: relay.Expr, new: Sequence[relay.Expr]) -> relay.Expr | None:
    if isinstance(expr, relay.TupleGetItem) and is_call(expr.tuple_value, "split"):
        return _slice_of_split(expr, new[0].args[0])
    if is_call(expr, *_FILLERS):
        value = _FILLERS[expr.op.name]
        if value is None and not isinstance(new[-1], relay.Constant):
            return None
        filler = new[-1].data.numpy() if value is None else value
        kind = expr.checked_type
        return relay.const(np.full([int(extent) for extent in kind.shape], filler, kind.dtype), kind.dtype)
    return None


def is_call(expr: relay.Expr, *names: str) -> bool:
    return isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name in names


def _slice_of_split(expr: relay.TupleGetItem, data: relay.Expr) -> relay.Expr:
    split = expr.tuple_value
    axis = int(split.attrs.axis)
    axis += len(split.args[0].checked_type.shape) if axis < 0 else 0
    extents = [int(part.shape[axis]) for part in split.checked_type.fields]
    begin = sum(extents[: expr.index])
    return relay.strided_slice(data, [begin], [begin + extents[expr.index]], strides=[1], axes=[axis])
