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
    """As :func:`in_order`, each with its children: to ask TVM for them again takes longer than all the rest of a pass.

    Each expression is one Python object here.  TVM makes another one whenever it is asked, and to compare two asks it twice.
    """
    found: dict[relay.Expr, list[relay.Expr]] = {}
    known: dict[int, relay.Expr] = {root.handle.value: root}
    seen: set[int] = set()
    stack: list[tuple[relay.Expr, list[relay.Expr] | None]] = [(root, None)]
    while stack:
        expr, below = stack.pop()
        if below is not None:
            found[expr] = below
        elif expr.handle.value not in seen:
            seen.add(expr.handle.value)
            below = [known.setdefault(child.handle.value, child) for child in children(expr)]
            stack.append((expr, below))
            stack.extend((child, None) for child in reversed(below) if child.handle.value not in seen)
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
    if all(a is b or a.same_as(b) for a, b in zip(children(expr) if old is None else old, new, strict=True)):
        return expr
    if isinstance(expr, relay.Call):
        return relay.Call(expr.op, list(new), expr.attrs, expr.type_args, expr.span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(list(new), expr.span)
    if isinstance(new[0], relay.Tuple):
        return new[0].fields[expr.index]
    return relay.TupleGetItem(new[0], expr.index, expr.span)


def with_types(module: tvm.IRModule, order: Mapping[relay.Expr, list[relay.Expr]] | None = None) -> tvm.IRModule:
    """``module``, with types inferred where one is missing: ``InferType`` makes all of it anew.

    ``order`` as for :func:`rewrite`.
    """
    main, untyped = module["main"], list[relay.Expr]()

    def note(expr: relay.Expr) -> None:
        if not isinstance(expr, tvm.ir.Op) and expr._checked_type_ is None:
            untyped.append(expr)

    for expr in (*main.params, *(children_in_order(main.body) if order is None else order)):
        note(expr)
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function):
            relay.analysis.post_order_visit(expr.op, note)
    return relay.transform.InferType()(module) if untyped else module


def rewrite(
    module: tvm.IRModule, rule: Rule, order: Mapping[relay.Expr, list[relay.Expr]] | None = None
) -> tvm.IRModule:
    """``module``, with types inferred and each expression of ``@main`` replaced by ``rule``.

    ``order`` is its body's :func:`children_in_order`, where that is known.
    """
    main = module["main"]
    made: dict[relay.Expr, relay.Expr] = {}
    order = children_in_order(main.body) if order is None else order
    for expr, below in order.items():
        new = [made[child] for child in below]
        replaced = rule(expr, new)
        made[expr] = with_children(expr, new, below) if replaced is None else replaced
    if made[main.body].same_as(main.body):
        return with_types(module, order)
    result = tvm.IRModule(dict(module.functions_items()), module.type_definitions)
    result["main"] = relay.Function(main.params, made[main.body], None, main.type_params, main.attrs)
    return relay.transform.InferType()(result)
