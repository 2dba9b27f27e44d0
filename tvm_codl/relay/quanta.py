"""How finely the outputs of a quantised network are rounded."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay

from tvm_codl.relay.calls import is_call, value_of
from tvm_codl.relay.stored_integers import MOVES
from tvm_codl.relay.walk import in_order

#: Of an output that a quantised network computes in float32 from what it had rounded before: an eighth-bit step of that
#: output's own range.
OF_RANGE = -1.0


def quanta_of(module: tvm.IRModule) -> tuple[float, ...]:
    """For each output of a simplified network the distance between two values that it can have; 0 for float32.

    :data:`OF_RANGE` where only tensors before the output are quantised.  Empty for a network that quantises nothing.
    """
    body = module["main"].body
    if not any(is_call(expr, "reinterpret") for expr in in_order(body)):
        return ()
    return tuple(_quantum(output) for output in (body.fields if isinstance(body, relay.Tuple) else [body]))


def _quantum(expr: relay.Expr) -> float:
    """Backwards through scales, offsets and what moves values, to where :mod:`.rounding` rounded them."""
    step = 1.0
    while is_call(expr, "multiply", "divide", "add", "subtract", "cast", "annotation.stop_fusion", *MOVES):
        if is_call(expr, "multiply", "divide", "add", "subtract"):
            constant = value_of(expr.args[1])
            if constant is None or constant.size == 0 or np.ptp(constant):
                return OF_RANGE
            if is_call(expr, "multiply", "divide"):
                by = abs(float(constant.flat[0]))
                step = step * by if is_call(expr, "multiply") else step / by
        expr = expr.args[0]
    return step if is_call(expr, "reinterpret") else OF_RANGE
