"""The pass that says where quantised tensors pass from one operator to the next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import tvm
from tvm import relay
from tvm.relay.op import OpPattern
from tvm.relay.op.annotation import stop_fusion

from tvm_codl.relay.calls import is_call, shape_of
from tvm_codl.relay.quantised import DEQUANTISE, QUANTISE
from tvm_codl.relay.walk import children, in_order, rewrite


@dataclass(frozen=True)
class _Arm:
    """What a value is fused behind: the heavy operator, by its number in the network's order, and the last place before the
    value where the tensor is of eight bits."""

    heavy: int
    quantised: relay.Expr | None


@tvm.transform.module_pass(opt_level=0, name="EndOperators")
def EndOperators(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Between two heavy operators a tensor that is quantised is stored so: what dequantises it is fused with its reader.

    ``FuseOps`` by itself fuses all element-wise operators behind the one before them, and would store float32.
    """
    order = list(in_order(module["main"].body))
    if any(isinstance(expr, relay.Call) and not is_call(expr) for expr in order):
        return module
    uses = Counter(child for expr in order for child in children(expr))
    arms: dict[relay.Expr, tuple[_Arm, ...]] = {}
    ends: set[relay.Expr] = set()
    for number, expr in enumerate(order):
        behind = tuple(arm for child in children(expr) for arm in arms.get(child, ()))
        if not is_call(expr):
            arms[expr] = behind
        elif not _is_elementwise(expr):
            direct = {
                f for child in children(expr) for f in (child.fields if isinstance(child, relay.Tuple) else [child])
            }
            ends |= {arm.quantised for arm in behind if arm.quantised is not None and arm.quantised not in direct}
            arms[expr] = (_Arm(number, None),)
        elif behind and not (is_call(expr, QUANTISE) and uses[expr] > 1):
            last = max(behind, key=lambda arm: arm.heavy)
            ends |= {arm.quantised for arm in behind if arm.heavy != last.heavy and arm.quantised is not None}
            arms[expr] = (_Arm(last.heavy, expr) if is_call(expr, QUANTISE) else last,)
    outputs = order[-1].fields if isinstance(order[-1], relay.Tuple) else [order[-1]]
    # A picture is then given the file's layout.
    pictures = [output for output in outputs if is_call(output, DEQUANTISE) and len(shape_of(output)) == 4]
    ends |= {arm.quantised for output in pictures for arm in arms.get(output, ()) if arm.quantised is not None}
    return rewrite(
        module, lambda expr, new: stop_fusion(relay.Call(expr.op, list(new), expr.attrs)) if expr in ends else None
    )


def _is_elementwise(call: relay.Call) -> bool:
    pattern = call.op.get_attr("TOpPattern")
    return is_call(call, QUANTISE, DEQUANTISE) or (pattern is not None and int(pattern) <= OpPattern.BROADCAST)
