"""The expressions of a region, without recursion: a region may be a whole network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm import relay


def parts(expression: relay.Expr) -> Sequence[relay.Expr]:
    if isinstance(expression, relay.Call):
        return list(expression.args)
    if isinstance(expression, relay.Tuple):
        return list(expression.fields)
    return [expression.tuple_value] if isinstance(expression, relay.TupleGetItem) else []


def in_order(body: relay.Expr) -> Iterator[relay.Expr]:
    """Every expression of a function's body once, behind its parts; not what is inside of a called function."""
    seen: set[relay.Expr] = set()
    stack = [(body, False)]
    while stack:
        expression, ready = stack.pop()
        if ready:
            yield expression
        elif expression not in seen:
            seen.add(expression)
            stack.append((expression, True))
            stack.extend((part, False) for part in reversed(parts(expression)))
