"""Walking and rewriting a Relay graph without recursion.

Relay's own Python mutators recurse once for each operator on the longest path: beyond Python's limit for deep networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import tvm
from tvm import relay

from tvm_codl.errors import UserError

#: An expression and its rewritten children → what replaces it; None: it stays, on its rewritten children.
Rule = Callable[[relay.Expr, Sequence[relay.Expr]], "relay.Expr | None"]


def in_order(root: relay.Expr) -> Iterator[relay.Expr]:
    """The expressions below ``root``, arguments first, without entering functions.

    Raises UserError for control flow.
    """
    yield from children_in_order(root)


def children_in_order(root: relay.Expr) -> dict[relay.Expr, list[relay.Expr]]:
    """As :func:`in_order`, each with its children: to ask TVM for them again takes longer than all the rest of a pass."""
    found: dict[relay.Expr, list[relay.Expr]] = {}
    seen: set[relay.Expr] = set()
    stack: list[tuple[relay.Expr, list[relay.Expr] | None]] = [(root, None)]
    while stack:
        expr, below = stack.pop()
        if below is not None:
            found[expr] = below
        elif expr not in seen:
            seen.add(expr)
            below = children(expr)
            stack.append((expr, below))
            stack.extend((child, None) for child in reversed(below) if child not in seen)
    return found


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


def with_children(expr: relay.Expr, new: Sequence[relay.Expr], old: Sequence[relay.Expr] | None = None) -> relay.Expr:
    """``expr`` on other children; itself where they are the same as its ``old`` ones, and a tuple's field where it is known."""
    if all(a.same_as(b) for a, b in zip(children(expr) if old is None else old, new, strict=True)):
        return expr
    if isinstance(expr, relay.Call):
        return relay.Call(expr.op, list(new), expr.attrs, expr.type_args, expr.span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(list(new), expr.span)
    if isinstance(new[0], relay.Tuple):
        return new[0].fields[expr.index]
    return relay.TupleGetItem(new[0], expr.index, expr.span)


def rewrite(
    module: tvm.IRModule, rule: Rule, order: Mapping[relay.Expr, list[relay.Expr]] | None = None
) -> tvm.IRModule:
    """``module``, with types inferred and each expression of ``@main`` replaced by ``rule``.

    ``order`` is its body's :func:`children_in_order`, where that is known.
    """
    main = module["main"]
    made: dict[relay.Expr, relay.Expr] = {}
    for expr, below in (children_in_order(main.body) if order is None else order).items():
        new = [made[child] for child in below]
        replaced = rule(expr, new)
        made[expr] = with_children(expr, new, below) if replaced is None else replaced
    if made[main.body].same_as(main.body):
        return relay.transform.InferType()(module)
    result = tvm.IRModule(dict(module.functions_items()), module.type_definitions)
    result["main"] = relay.Function(main.params, made[main.body], None, main.type_params, main.attrs)
    return relay.transform.InferType()(result)
