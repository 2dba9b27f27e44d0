"""The pass that says where quantised tensors pass from one operator to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relay
from tvm.relay.op import OpPattern
from tvm.relay.op.annotation import stop_fusion

from tvm_codl.relay.calls import is_call, shape_of
from tvm_codl.relay.quantised import DEQUANTISE, QUANTISE
from tvm_codl.relay.walk import children_in_order, rewrite


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
    body = module["main"].body
    order = children_in_order(body)
    if any(isinstance(expr, relay.Call) and not is_call(expr) for expr in order):
        return module
    uses = Counter(child for below in order.values() for child in below)
    arms: dict[relay.Expr, tuple[_Arm, ...]] = {}
    ends: set[relay.Expr] = set()
    for number, (expr, below) in enumerate(order.items()):
        behind = tuple(arm for child in below for arm in arms.get(child, ()))
        if not is_call(expr):
            arms[expr] = behind
        elif not _is_elementwise(expr):
            direct = {f for child in below for f in (child.fields if isinstance(child, relay.Tuple) else [child])}
            ends |= {arm.quantised for arm in behind if arm.quantised is not None and arm.quantised not in direct}
            arms[expr] = (_Arm(number, None),)
        elif behind and not (is_call(expr, QUANTISE) and uses[expr] > 1):
            last = max(behind, key=lambda arm: arm.heavy)
            ends |= {arm.quantised for arm in behind if arm.heavy != last.heavy and arm.quantised is not None}
            arms[expr] = (_Arm(last.heavy, expr) if is_call(expr, QUANTISE) else last,)
    outputs = body.fields if isinstance(body, relay.Tuple) else [body]
    # A picture is then given the file's layout.
    pictures = [output for output in outputs if is_call(output, DEQUANTISE) and len(shape_of(output)) == 4]
    ends |= {arm.quantised for output in pictures for arm in arms.get(output, ()) if arm.quantised is not None}

    def rule(expr: relay.Expr, new: Sequence[relay.Expr]) -> relay.Expr | None:
        return stop_fusion(relay.Call(expr.op, list(new), expr.attrs)) if expr in ends else None

    return rewrite(module, rule, order)


def _is_elementwise(call: relay.Call) -> bool:
    pattern = call.op.get_attr("TOpPattern")
    return is_call(call, QUANTISE, DEQUANTISE) or (pattern is not None and int(pattern) <= OpPattern.BROADCAST)
