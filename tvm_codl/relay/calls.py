"""Operator calls of Relay, and passes that replace them one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relay
from tvm.ir.base import SequentialSpan

from tvm_codl.errors import UserError
from tvm_codl.relay.walk import children_in_order, rewrite, with_children


@dataclass(frozen=True)
class Site:
    """A call that a rule may replace: ``call`` of the operator ``op`` as it was (typed), ``args`` as already rewritten.

    ``uses`` counts how often the calls of the *original* function use a rewritten expression.
    """

    call: relay.Call
    op: str
    args: tuple[relay.Expr, ...]
    uses: Counter[relay.Expr]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the call's result; () for a result that is a tuple."""
        return shape_of(self.call)


def shape_of(expr: relay.Expr) -> tuple[int, ...]:
    """() for a tuple.  Raises :class:`UserError` for a shape that the network decides as it runs."""
    kind = expr.checked_type
    return tensor_type(kind)[0] if isinstance(kind, relay.TensorType) else ()


def tensor_type(kind: relay.Type) -> tuple[tuple[int, ...], str]:
    """Shape and type of a tensor.  Raises UserError where the shape is not static."""
    if not isinstance(kind, relay.TensorType):
        raise UserError(f"the network passes a {type(kind).__name__} between operators, not a tensor")
    extents = list(kind.shape)  # once: each look at an extent is a call of TVM
    if not all(isinstance(extent, tvm.tir.IntImm) for extent in extents):
        raise UserError(
            "the network has a tensor whose shape is not known before it runs",
            f"shape {kind.shape}",
            "give the input shapes with --shape; leave out what selects by values (NonMaxSuppression)",
        )
    shape = tuple(map(int, extents))
    if 0 in shape:
        raise UserError(
            "the network has a tensor without elements",
            f"shape {kind.shape}",
            "give the input other shapes with --shape, or export the model without what is empty",
        )
    return shape, str(kind.dtype)


def is_call(expr: relay.Expr, *names: str) -> bool:
    """A call of an operator, of one of these names if any are given."""
    return isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op) and (not names or expr.op.name in names)


def value_of(expr: relay.Expr) -> np.ndarray | None:
    """The value of a constant, None for anything else."""
    return expr.data.numpy() if isinstance(expr, relay.Constant) else None


def as_constant(value: np.ndarray) -> relay.Constant:
    """With its type named: Relay takes 64-bit numbers for 32-bit ones."""
    return relay.const(value, str(value.dtype))


def made_from(made: relay.Call, *replaced: relay.Call) -> relay.Call:
    """A new call with the spans of those that it replaces, the nodes of the file that they came from."""
    spans = [call.span for call in replaced if call.span]
    span = SequentialSpan(spans) if len(spans) > 1 else spans[0] if spans else None
    return relay.Call(made.op, made.args, made.attrs, made.type_args, span)


def call_pass(name: str, rule: Callable[[Site], relay.Expr | None]) -> tvm.transform.Pass:
    """A pass that replaces each operator call of ``@main`` for which ``rule`` returns an expression.

    The rule sees arguments that are already rewritten.  A function with control flow is left as it is.
    """

    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        try:
            order = children_in_order(module["main"].body)
        except UserError:
            return module
        calls = [expr for expr in order if isinstance(expr, relay.Call)]
        names = {call: str(call.op.name) for call in calls if isinstance(call.op, tvm.ir.Op)}
        if len(names) < len(calls):
            return module
        users = Counter(child for below in order.values() for child in below)
        uses: Counter[relay.Expr] = Counter()

        def replace(expr: relay.Expr, new: Sequence[relay.Expr]) -> relay.Expr:
            op = names.get(expr)
            made = rule(Site(expr, op, tuple(new), uses)) if op else None
            made = with_children(expr, new, order[expr]) if made is None else made
            uses[made] += users[expr]
            return made

        return rewrite(module, replace, order)

    return tvm.transform.module_pass(transform, opt_level=0, name=name)


def only_with(operators: Collection[str], *passes: tvm.transform.Pass) -> tvm.transform.Pass:
    """``passes`` for a module that has one of ``operators``; another one is left as it is, which takes no time."""

    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        if not any(str(name) in operators for name in relay.analysis.list_op_freqs(module)):
            return module
        return tvm.transform.Sequential(list(passes))(module)

    return tvm.transform.module_pass(transform, opt_level=0, name="OnlyWith")
