"""Exact minimum of a sum of node and edge tables over a graph, by eliminating one variable after the other.

This is dynamic programming on an arbitrary graph (Bertele and Brioschi, *Nonserial Dynamic Programming*, 1972;
"bucket elimination", Dechter 1999): all tables that mention a variable are added up, the variable is minimised
away, and what is left is one table over its neighbours.  On a chain of operators it is the Viterbi recursion.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.plan.relax import relax

Table = NDArray[np.float64]
Edges = Mapping[tuple[int, int], Table]

#: Entries of the largest table that is built (16 MB of float64), and of all together (a fifth of a second).
TABLE_LIMIT = 2_000_000
WORK_LIMIT = 40_000_000
#: Of a sum: what is no more below it is equal to it.
ROUNDING = 1e-12


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


def minimise(nodes: Sequence[Table], edges: Edges, limit: int = TABLE_LIMIT, effort: float = 1.0) -> Minimum:
    """Minimise ``sum nodes[v][x_v] + sum edges[a, b][x_a, x_b]``.

    ``nodes[v]`` has shape (choices of v,), ``edges[a, b]`` (choices of a, choices of b); infinity forbids.
    Exact while no table needs more than ``limit`` entries, nor all together more than ``WORK_LIMIT``; else near the minimum
    (:mod:`.relax`), and ``bound`` says how near.  ``effort`` is the share of the usual time that either may take.
    """
    order = _order(nodes, edges, limit, effort * WORK_LIMIT)
    if order is not None:
        choice = _solve(nodes, edges, order)
        total = evaluate(choice, nodes, edges)
        return Minimum(choice, total, total, True)
    choice, bound = relax(nodes, edges, effort)
    total = evaluate(choice, nodes, edges)
    if bound > total - ROUNDING * abs(total):
        bound = total
    return Minimum(choice, total, bound, bound == total)


def _order(nodes: Sequence[Table], edges: Edges, limit: int, most: float) -> list[int] | None:
    """Smallest next table first, ties to the lower index; None where the tables are too large."""
    near: dict[int, set[int]] = {v: set() for v in range(len(nodes))}
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)

    def entries(v: int) -> int:
        return math.prod(len(nodes[u]) for u in near[v]) * len(nodes[v])

    queue = [(entries(v), v) for v in near]
    heapq.heapify(queue)
    order: list[int] = []
    work = 0
    while queue:
        size, v = heapq.heappop(queue)
        if v not in near or size != entries(v):
            continue  # its neighbours are others now, and it stands in the queue again
        work += size
        if size > limit or work > most:
            return None
        order.append(v)
        others = near.pop(v)
        for u in others:
            near[u].discard(v)
            near[u] |= others - {u}
            heapq.heappush(queue, (entries(u), u))
    return order


def _solve(nodes: Sequence[Table], edges: Edges, order: Sequence[int]) -> tuple[int, ...]:
    """The best assignment."""
    tables: dict[int, list[tuple[tuple[int, ...], Table]]] = {v: [((v,), nodes[v])] for v in order}
    rank = {v: i for i, v in enumerate(order)}
    for (a, b), table in edges.items():
        tables[a if rank[a] < rank[b] else b].append(((a, b), table))
    scopes: dict[int, tuple[int, ...]] = {}
    for v in order:
        scope = scopes[v] = tuple(sorted({u for variables, _ in tables[v] for u in variables} - {v}))
        if scope:
            # The variable goes first: NumPy finds the minimum over a first axis many times as fast as over a short last one.
            rest = _joint(tables[v], (v, *scope), nodes).min(axis=0)
            tables[min(scope, key=rank.__getitem__)].append((scope, rest))
    choice = [0] * len(nodes)
    for v in reversed(order):
        given = {u: choice[u] for u in scopes[v]}
        fixed = [
            (tuple(u for u in variables if u not in given), table[tuple(given.get(u, slice(None)) for u in variables)])
            for variables, table in tables[v]
        ]
        choice[v] = int(np.argmin(_joint(fixed, (v,), nodes)))
    return tuple(choice)


def _joint(tables: Sequence[tuple[tuple[int, ...], Table]], whole: tuple[int, ...], nodes: Sequence[Table]) -> Table:
    """The sum of tables, over the variables ``whole`` in their order."""
    joint = np.zeros([len(nodes[u]) for u in whole])
    for variables, table in tables:
        joint += _spread(table, variables, whole)
    return joint


def _spread(table: Table, variables: tuple[int, ...], whole: tuple[int, ...]) -> Table:
    """``table`` with its axes in the order of ``whole`` and length one where it does not depend on a variable."""
    axes = sorted(range(len(variables)), key=lambda i: whole.index(variables[i]))
    sizes = dict(zip(variables, table.shape, strict=True))
    return np.transpose(table, axes).reshape([sizes.get(u, 1) for u in whole])
