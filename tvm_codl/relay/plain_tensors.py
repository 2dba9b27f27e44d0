"""The pass that takes out what would hide a tensor from the split rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relay

from tvm_codl.relay.calls import is_call
from tvm_codl.relay.walk import rewrite

_FILLERS = {"zeros": 0, "ones": 1, "zeros_like": 0, "ones_like": 1, "full": None, "full_like": None}


@tvm.transform.module_pass(opt_level=0, name="PlainTensors")
def PlainTensors(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Each part of a ``split`` becomes a slice of its own: a slice can be fused, and cut, where a tuple can not.

    Constants that Relay writes as operators (``zeros``, ``ones_like``, ...) become constants, which a piece can slice.
    """
    return rewrite(module, _plain_tensor)


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


def _slice_of_split(expr: relay.TupleGetItem, data: relay.Expr) -> relay.Expr:
    split = expr.tuple_value
    axis = int(split.attrs.axis)
    axis += len(split.args[0].checked_type.shape) if axis < 0 else 0
    extents = [int(part.shape[axis]) for part in split.checked_type.fields]
    begin = sum(extents[: expr.index])
    return relay.strided_slice(data, [begin], [begin + extents[expr.index]], strides=[1], axes=[axis])
