"""Walking and rewriting a Relay graph without recursion.

Relay's own Python mutators recurse once for each operator on the longest path: beyond Python's limit for deep networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import tvm
from tvm import relay

from tvm_codl.errors import UserError

#: An expression and its rewritten children → what replaces it; None: it stays, on its rewritten children.
Rule = Callable[[relay.Expr, Sequence[relay.Expr]], "relay.Expr | None"]


def in_order(root: relay.Expr) -> Iterator[relay.Expr]:
    """The expressions below ``root``, arguments first, without entering functions.

    Raises UserError for control flow.
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


def with_children(expr: relay.Expr, new: Sequence[relay.Expr]) -> relay.Expr:
    """``expr`` on other children; itself where they are the same."""
    if all(a.same_as(b) for a, b in zip(children(expr), new, strict=True)):
        return expr
    if isinstance(expr, relay.Call):
        return relay.Call(expr.op, list(new), expr.attrs, expr.type_args, expr.span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(list(new), expr.span)
    return relay.TupleGetItem(new[0], expr.index, expr.span)


def rewrite(module: tvm.IRModule, rule: Rule) -> tvm.IRModule:
    """``module``, with types inferred and each expression of ``@main`` replaced by ``rule``."""
    main = module["main"]
    made: dict[relay.Expr, relay.Expr] = {}
    for expr in in_order(main.body):
        new = [made[child] for child in children(expr)]
        replaced = rule(expr, new)
        made[expr] = with_children(expr, new) if replaced is None else replaced
    result = tvm.IRModule(dict(module.functions_items()), module.type_definitions)
    result["main"] = relay.Function(main.params, made[main.body], None, main.type_params, main.attrs)
    return relay.transform.InferType()(result)
