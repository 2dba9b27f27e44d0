"""Walking and rewriting a Relay graph without recursion, which deep networks would exhaust."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tvm import relay

from tvm_codl.errors import UserError


def in_order(root: relay.Expr) -> Iterator[relay.Expr]:
    """The expressions below ``root``, arguments first, without entering functions.

    Raises UserError for an expression that is no part of a plain graph of tensors (control flow).
    """
    done: set[relay.Expr] = set()
    stack = [(root, False)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            yield expr
        elif expr not in done:
            done.add(expr)
            stack.append((expr, True))
            stack.extend((child, False) for child in reversed(children(expr)) if child not in done)


def children(expr: relay.Expr) -> list[relay.Expr]:
    if isinstance(expr, relay.Call):
        return list(expr.args)
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, relay.Var | relay.Constant):
        return []
    raise UserError(
        f"the network contains {type(expr).__name__}, which is no plain graph of operators",
        next="export the model without control flow",
    )


def rewrite(root: relay.Expr, rule: Callable[[relay.Expr, Sequence[relay.Expr]], relay.Expr | None]) -> relay.Expr:
    """``root`` with each expression replaced by what ``rule`` makes of it and of its rewritten children.

    Where the rule returns None, the expression stays, on its rewritten children.
    """
    made: dict[relay.Expr, relay.Expr] = {}
    for expr in in_order(root):
        old = children(expr)
        new = [made[child] for child in old]
        replaced = rule(expr, new)
        if replaced is None:
            same = all(a.same_as(b) for a, b in zip(old, new, strict=True))
            replaced = expr if same else _with_children(expr, new)
        made[expr] = replaced
    return made[root]


def _with_children(expr: relay.Expr, new: list[relay.Expr]) -> relay.Expr:
    if isinstance(expr, relay.Call):
        return relay.Call(expr.op, new, expr.attrs, expr.type_args, expr.span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(new, expr.span)
    return relay.TupleGetItem(new[0], expr.index, expr.span)
