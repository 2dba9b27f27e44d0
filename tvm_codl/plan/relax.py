"""A choice near the minimum of a sum of node and edge tables, and a bound below it, in bounded time for any graph.

Variables with at most two neighbours are eliminated first, which is exact and leaves no table of more than two variables.
On what is left, tables are moved between nodes and edges, which changes no assignment's sum, so that the sum of their minima
grows: sequential tree-reweighted message passing (TRW-S: Kolmogorov, *Convergent Tree-Reweighted Message Passing for Energy
Minimization*, IEEE TPAMI 28(10), 2006).  That sum is the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
#: By variable and neighbour, the table of both, with the variable's axis first.
Near = list[dict[int, Table]]

#: Messages that are computed at most, but for the fewest passes over all edges; one takes about 20 us.
MESSAGES = 8_000
FEWEST, MOST = 6, 100
SWEEPS = 10


def relax(
    nodes: Sequence[Table], edges: Mapping[tuple[int, int], Table], effort: float = 1.0
) -> tuple[tuple[int, ...], float]:
    """An assignment of ``nodes[v][x_v] + edges[a, b][x_a, x_b]``, and a number that no assignment's sum is below.

    Infinity forbids.  ``effort`` is the share of :data:`MESSAGES`.
    """
    unary, near = _finite(nodes, edges)
    below, removed = _eliminate_branches(unary, near)
    left = sorted(set(range(len(nodes))) - {v for v, _, _ in removed})
    choice, bound = _pass_messages(left, unary, near, effort * MESSAGES)
    for v, scope, where in reversed(removed):
        choice[v] = int(where[tuple(choice[u] for u in scope)])
    return tuple(choice[v] for v in range(len(nodes))), below + bound


def _finite(nodes: Sequence[Table], edges: Mapping[tuple[int, int], Table]) -> tuple[list[Table], Near]:
    """Copies in which what is forbidden costs more than any assignment without it."""
    tables = [*nodes, *edges.values()]
    most = 1.0 + 2 * sum(float(np.abs(table[np.isfinite(table)]).max(initial=0.0)) for table in tables)
    unary = [np.where(np.isfinite(table), table, most) for table in nodes]
    near: Near = [{} for _ in nodes]
    for (a, b), table in edges.items():
        _add(near, a, b, np.where(np.isfinite(table), table, most))
    return unary, near


def _add(near: Near, a: int, b: int, table: Table) -> None:
    near[a][b] = near[a][b] + table if b in near[a] else table
    near[b][a] = near[a][b].T


def _eliminate_branches(unary: list[Table], near: Near) -> tuple[float, list[tuple[int, tuple[int, ...], Table]]]:
    """Takes variables with at most two neighbours out of ``near``, and adds their minima to their neighbours' tables.

    Returns the sum of what was left without neighbours, and in order each variable, its neighbours then, and its best value
    for each of their values.
    """
    below = 0.0
    removed: list[tuple[int, tuple[int, ...], Table]] = []
    gone = [False] * len(near)
    waiting = [v for v in range(len(near)) if len(near[v]) <= 2]
    while waiting:
        v = waiting.pop()
        if gone[v] or len(near[v]) > 2:
            continue
        scope = tuple(sorted(near[v]))
        joint = unary[v]
        if len(scope) == 1:
            joint = near[scope[0]][v] + joint
        elif scope:
            joint = near[scope[0]][v][:, None] + near[scope[1]][v] + joint
        least = joint.min(axis=-1)
        removed.append((v, scope, joint.argmin(axis=-1)))
        gone[v] = True
        for u in scope:
            del near[u][v]
        if len(scope) == 2:
            _add(near, *scope, least)
        elif scope:
            unary[scope[0]] = unary[scope[0]] + least
        else:
            below += float(least)
        waiting.extend(scope)
    return below, removed


def _pass_messages(
    left: Sequence[int], unary: Sequence[Table], near: Near, most: float
) -> tuple[dict[int, int], float]:
    """The best assignment and bound of passes over the variables ``left``, forward and backward in turn."""
    messages: Near = [{u: np.zeros(len(unary[v])) for u in near[v]} for v in range(len(near))]
    count = sum(len(near[v]) for v in left) // 2
    best: dict[int, int] = {}
    total, bound = np.inf, -np.inf
    for turn in range(min(max(int(most / max(count, 1)), FEWEST), MOST)):
        choice, reached = _pass(left if turn % 2 == 0 else left[::-1], unary, near, messages)
        bound = max(bound, reached)
        if (found := _sum(choice, unary, near)) < total:
            best, total = choice, found
        if bound >= total - 1e-12 * abs(total):
            break
    return _settle(best, unary, near), min(bound, total)


def _pass(order: Sequence[int], unary: Sequence[Table], near: Near, messages: Near) -> tuple[dict[int, int], float]:
    """One pass: an assignment, each variable's value as the messages and the values before it have it, and a bound.

    Of ``whole``, a variable's table with all its messages, each later edge gets a ``share``, so that the sum of all tables
    stays; the bound is the sum of the minima of these edges and of what stays with the variables.
    """
    choice: dict[int, int] = {}
    bound = 0.0
    for v in order:
        before = [u for u in near[v] if u in choice]
        after = [u for u in near[v] if u not in choice]
        cost = unary[v].copy()
        for u in after:
            cost += messages[v][u]
        whole = cost.copy()
        for u in before:
            whole += messages[v][u]
            cost += near[v][u][:, choice[u]]
        choice[v] = int(cost.argmin())
        share = 1 / max(len(before), len(after), 1)
        bound += (1 - share * len(after)) * float(whole.min())
        for u in after:
            message = ((share * whole - messages[v][u])[:, None] + near[v][u]).min(axis=0)
            low = float(message.min())
            messages[u][v] = message - low
            bound += low
    return choice, bound


def _settle(choice: dict[int, int], unary: Sequence[Table], near: Near) -> dict[int, int]:
    """Moves one variable at a time to its best value beside its neighbours'."""
    for _ in range(SWEEPS):
        moved = False
        for v in choice:
            cost = unary[v].copy()
            for u, table in near[v].items():
                cost += table[:, choice[u]]
            value = int(cost.argmin())
            if cost[value] < cost[choice[v]]:
                choice[v], moved = value, True
        if not moved:
            break
    return choice


def _sum(choice: Mapping[int, int], unary: Sequence[Table], near: Near) -> float:
    total = sum(float(unary[v][value]) for v, value in choice.items())
    return total + sum(float(near[v][u][choice[v], choice[u]]) for v in choice for u in near[v] if u > v)
