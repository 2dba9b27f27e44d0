"""Exact minimum of a sum of node and edge tables over a graph, by eliminating one variable after the other.

This is dynamic programming on an arbitrary graph (Bertele and Brioschi, *Nonserial Dynamic Programming*, 1972;
"bucket elimination", Dechter 1999): all tables that mention a variable are added up, the variable is minimised
away, and what is left is one table over its neighbours.  On a chain of operators it is the Viterbi recursion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
Edges = Mapping[tuple[int, int], Table]

#: Entries of the largest table that is built (16 MB of float64) before variables are fixed instead.
TABLE_LIMIT = 2_000_000
_ROUNDS = 8


class Minimum(msgspec.Struct, frozen=True):
    """``choice[v]`` is the value of variable v; ``bound`` <= every assignment's sum, and == ``total`` if ``exact``."""

    choice: tuple[int, ...]
    total: float
    bound: float
    exact: bool


def evaluate(choice: Sequence[int], nodes: Sequence[Table], edges: Edges) -> float:
    """The sum that ``minimise`` minimises, at one assignment."""
    total = sum(float(table[value]) for table, value in zip(nodes, choice, strict=True))
    return total + sum(float(table[choice[a], choice[b]]) for (a, b), table in edges.items())


def minimise(nodes: Sequence[Table], edges: Edges, limit: int = TABLE_LIMIT) -> Minimum:
    """Minimise ``sum nodes[v][x_v] + sum edges[a, b][x_a, x_b]``.

    ``nodes[v]`` has shape (choices of v,), ``edges[a, b]`` (choices of a, choices of b); infinity forbids.
    Exact while no table needs more than ``limit`` entries.  Beyond that, the variables that make the tables large
    are fixed and improved in turn (each improvement re-solves all others exactly); ``bound`` then is the minimum
    of a relaxation in which each of their edges chooses a value of its own, so it is below the true optimum.
    """
    order, cut = _order(nodes, edges, limit)
    if not cut:
        choice = _solve(nodes, edges, order, {})
        total = evaluate(choice, nodes, edges)
        return Minimum(choice, total, total, True)
    bound = _relaxed(nodes, edges, order, cut)
    choice, total = _improve(nodes, edges, order, cut)
    return Minimum(choice, total, bound, False)


def _order(nodes: Sequence[Table], edges: Edges, limit: int) -> tuple[list[int], list[int]]:
    """Smallest next table first (ties to the lower index), and the variables to fix so that all tables fit."""
    near: dict[int, set[int]] = {v: set() for v in range(len(nodes))}
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    order: list[int] = []
    cut: list[int] = []

    def entries(v: int) -> int:
        size = len(nodes[v])
        for u in near[v]:
            size *= len(nodes[u])
        return size

    while near:
        v = min(near, key=lambda u: (entries(u), u))
        if entries(v) > limit:
            # The best-connected variable frees the most tables; it is taken out of the graph instead.
            v = max(near, key=lambda u: (len(near[u]), len(nodes[u]), -u))
            cut.append(v)
            fill: set[int] = set()
        else:
            order.append(v)
            fill = near[v]
        for u in near.pop(v):
            near[u].discard(v)
            near[u] |= fill - {u}
    return order, cut


def _solve(nodes: Sequence[Table], edges: Edges, order: Sequence[int], fixed: Mapping[int, int]) -> tuple[int, ...]:
    """The best assignment of the variables in ``order``, with those in ``fixed`` held."""
    tables: dict[int, list[tuple[tuple[int, ...], Table]]] = {v: [((v,), nodes[v])] for v in order}
    rank = {v: i for i, v in enumerate(order)}
    for (a, b), table in edges.items():
        if a in fixed and b in fixed:
            continue
        if a in fixed:
            tables[b].append(((b,), table[fixed[a], :]))
        elif b in fixed:
            tables[a].append(((a,), table[:, fixed[b]]))
        else:
            tables[a if rank[a] < rank[b] else b].append(((a, b), table))
    best: list[tuple[int, tuple[int, ...], NDArray[np.intp]]] = []
    for v in order:
        scope = tuple(sorted({u for variables, _ in tables[v] for u in variables} - {v}))
        whole = (*scope, v)
        joint = np.zeros([len(nodes[u]) for u in whole])
        for variables, table in tables[v]:
            joint += _spread(table, variables, whole)
        best.append((v, scope, np.argmin(joint, axis=-1)))
        if scope:
            tables[min(scope, key=rank.__getitem__)].append((scope, joint.min(axis=-1)))
    choice = [fixed.get(v, 0) for v in range(len(nodes))]
    for v, scope, where in reversed(best):
        choice[v] = int(where[tuple(choice[u] for u in scope)])
    return tuple(choice)


def _spread(table: Table, variables: tuple[int, ...], whole: tuple[int, ...]) -> Table:
    """``table`` with its axes in the order of ``whole`` and length one where it does not depend on a variable."""
    axes = sorted(range(len(variables)), key=lambda i: whole.index(variables[i]))
    sizes = dict(zip(variables, table.shape, strict=True))
    return np.transpose(table, axes).reshape([sizes.get(u, 1) for u in whole])


def _relaxed(nodes: Sequence[Table], edges: Edges, order: Sequence[int], cut: Sequence[int]) -> float:
    held = set(cut)
    free = [np.array(table, dtype=np.float64) for table in nodes]
    kept: dict[tuple[int, int], Table] = {}
    constant = sum(float(nodes[v].min()) for v in cut)
    for (a, b), table in edges.items():
        if a in held and b in held:
            constant += float(table.min())
        elif a in held:
            free[b] += table.min(axis=0)
        elif b in held:
            free[a] += table.min(axis=1)
        else:
            kept[a, b] = table
    for v in cut:
        free[v] = np.zeros(1)
    return constant + evaluate(_solve(free, kept, order, dict.fromkeys(cut, 0)), free, kept)


def _improve(
    nodes: Sequence[Table], edges: Edges, order: Sequence[int], cut: Sequence[int]
) -> tuple[tuple[int, ...], float]:
    """Start from each fixed variable's own best value; move one of them at a time to what its neighbours prefer."""
    fixed = {v: int(np.argmin(nodes[v])) for v in cut}
    choice = _solve(nodes, edges, order, fixed)
    total = evaluate(choice, nodes, edges)
    for _ in range(_ROUNDS):
        before = total
        for v in cut:
            for value in _preferred(v, choice, nodes, edges)[:2]:
                if value == choice[v]:
                    continue
                trial = _solve(nodes, edges, order, {u: choice[u] for u in cut} | {v: value})
                reached = evaluate(trial, nodes, edges)
                if reached < total:
                    choice, total = trial, reached
        if total >= before:
            break
    return choice, total


def _preferred(v: int, choice: Sequence[int], nodes: Sequence[Table], edges: Edges) -> list[int]:
    cost = np.array(nodes[v], dtype=np.float64)
    for (a, b), table in edges.items():
        if a == v:
            cost += table[:, choice[b]]
        elif b == v:
            cost += table[choice[a], :]
    return [int(i) for i in np.argsort(cost, kind="stable")]
