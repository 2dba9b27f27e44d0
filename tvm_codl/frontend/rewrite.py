"""Rewriting a Relay function call by call, from its inputs to its outputs.

Relay's own Python mutators recurse once for each operator on the longest path, which a network of some hundred
operators takes beyond Python's limit; this one walks a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relay

from tvm_codl.errors import UserError

Rule = Callable[["Site"], "relay.Expr | None"]


@dataclass(frozen=True)
class Site:
    """A call that a rule may replace: ``call`` as it was (typed), ``args`` as already rewritten.

    ``uses`` counts how often a rewritten expression has been used so far by the calls of the *original* function.
    """

    call: relay.Call
    args: tuple[relay.Expr, ...]
    uses: Counter[relay.Expr]

    @property
    def op(self) -> str:
        return str(self.call.op.name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the call's result; () for a result that is a tuple."""
        return shape_of(self.call)


def shape_of(expr: relay.Expr) -> tuple[int, ...]:
    """() for a tuple.  Raises :class:`UserError` for a shape that the network decides as it runs."""
    kind = expr.checked_type
    if not isinstance(kind, relay.TensorType):
        return ()
    if not all(isinstance(size, tvm.tir.IntImm) for size in kind.shape):
        raise UserError(
            "the network has a tensor whose shape is not known before it runs",
            f"shape {kind.shape}",
            "give the input shapes with --shape; what selects by values (NonMaxSuppression) belongs behind the network",
        )
    return tuple(int(size) for size in kind.shape)


def is_call(expr: relay.Expr, *names: str) -> bool:
    return isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name in names


def value_of(expr: relay.Expr) -> np.ndarray | None:
    """The value of a constant, None for anything else."""
    return expr.data.numpy() if isinstance(expr, relay.Constant) else None


def as_constant(value: np.ndarray) -> relay.Constant:
    """With its type named: Relay takes 64-bit numbers for 32-bit ones."""
    return relay.const(value, str(value.dtype))


def rewrite(module: tvm.IRModule, rule: Rule) -> tvm.IRModule:
    """``@main`` with each operator call for which ``rule`` returns an expression replaced by that expression.

    The rule sees arguments that are already rewritten.  A function with control flow is left as it is.
    """
    function = module["main"]
    order: list[relay.Expr] = []
    relay.analysis.post_order_visit(function.body, order.append)
    if any(not isinstance(e, relay.Call | relay.Tuple | relay.TupleGetItem | relay.Var | relay.Constant | tvm.ir.Op) for e in order):  # fmt: skip
        return module
    users: Counter[relay.Expr] = Counter()
    for expr in order:
        users.update(_children(expr))
    uses: Counter[relay.Expr] = Counter()
    made: dict[relay.Expr, relay.Expr] = {}
    for expr in order:
        fresh = _rebuild(expr, made, rule, uses)
        made[expr] = fresh
        uses[fresh] += users[expr]
    body = made[function.body]
    result = relay.Function(function.params, body, None, function.type_params, function.attrs)
    return relay.transform.InferType()(tvm.IRModule.from_expr(result))


def _children(expr: relay.Expr) -> list[relay.Expr]:
    if isinstance(expr, relay.Call):
        return list(expr.args)
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    return [expr.tuple_value] if isinstance(expr, relay.TupleGetItem) else []


def _rebuild(expr: relay.Expr, made: dict[relay.Expr, relay.Expr], rule: Rule, uses: Counter[relay.Expr]) -> relay.Expr:
    old = _children(expr)
    new = [made[child] for child in old]
    same = all(a.same_as(b) for a, b in zip(old, new, strict=True))
    if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
        replacement = rule(Site(expr, tuple(new), uses))
        if replacement is not None:
            return replacement
        return expr if same else relay.Call(expr.op, new, expr.attrs, expr.type_args, expr.span)
    if same:
        return expr
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(new, expr.span)
    return relay.TupleGetItem(new[0], expr.index, expr.span)
