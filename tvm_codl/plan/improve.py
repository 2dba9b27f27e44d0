"""Improve: from good plans to a better one, by moving an operator or a branch at a time.

The search adds operators up; a plan's replay knows that branches run side by side, and that a processor which has nothing
to wait for runs ahead.  So a plan of a larger sum may take less time.  From the best plans of the search, moves that its
sums call cheap are tried in turn, and those that shorten the replay are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.costs import Costs
from tvm_codl.plan.eliminate import Table

Choice = tuple[int, ...]
Score = Callable[[Choice], float]

#: Plans that are replayed at most, and operators in them together: a hundred take about a millisecond.
MOST_REPLAYS = 60
MOST_REPLAYED = 6000
#: Less than this share of the time is no improvement.
LEAST_GAIN = 1e-6
#: Branches of one fork that are tried on the two processors.
MOST_BRANCHES = 4
CPU, GPU = 0, 1


def improved(graph: OpGraph, costs: Costs, starts: Sequence[Choice], score: Score, most: int = MOST_REPLAYS) -> Choice:
    """The best plan that was found with ``most`` calls of ``score``, those of ``starts`` not counted.

    A plan is the number of a candidate for each operator, in the graph's order; candidate 0 is the CPU, 1 the GPU.  The
    result never scores worse than the best of ``starts``, of which the first one wins a tie; equal inputs give equal plans.
    """
    scores = {start: score(start) for start in dict.fromkeys(starts)}
    best = min(scores, key=scores.__getitem__)
    if not np.isfinite(scores[best]):
        return best
    known, left = dict(scores), min(most, MOST_REPLAYED // len(best))
    sides = list(_sides(graph))
    for start in sorted(scores, key=scores.__getitem__)[:2]:
        choice, at, moved = start, scores[start], True
        while moved and left > 0:
            moved = False
            for trial in _moves(choice, costs, sides, left):
                if trial in known:
                    continue
                known[trial] = reached = score(trial)
                left -= 1
                if reached < at * (1 - LEAST_GAIN):
                    choice, at, moved = trial, reached, True
                    break
                if left <= 0:
                    break
        if at < known[best]:
            best = choice
    return best


def second(node: int, choice: Sequence[int], costs: Costs) -> Table:
    """What the sum of the costs would grow by with another placement of this operator, all others as they are."""
    table = costs.nodes[node].copy()
    for (a, b), edge in costs.edges.items():
        if a == node:
            table += edge[:, choice[b]]
        elif b == node:
            table += edge[choice[a], :]
    excess: Table = table - table[choice[node]]
    return excess


def _moves(choice: Choice, costs: Costs, sides: Sequence[Mapping[int, int]], most: int) -> Iterator[Choice]:
    """Plans that differ in a branch, then those that differ in one operator; what the sums call cheapest first."""
    for side in sides:
        if all(np.isfinite(costs.nodes[node][value]) for node, value in side.items()):
            yield tuple(side.get(node, value) for node, value in enumerate(choice))
    excess = _excess(choice, costs)
    cheap = sorted(
        (float(table[value]), node, value)
        for node, table in enumerate(excess)
        for value in np.argsort(table, kind="stable")[:4].tolist()
        if value != choice[node] and np.isfinite(table[value])
    )
    for _, node, value in islice(cheap, most):
        yield (*choice[:node], value, *choice[node + 1 :])


def _excess(choice: Choice, costs: Costs) -> list[Table]:
    """:func:`second` of every operator."""
    found = [table.copy() for table in costs.nodes]
    for (a, b), edge in costs.edges.items():
        found[a] += edge[:, choice[b]]
        found[b] += edge[choice[a], :]
    with np.errstate(invalid="ignore"):
        return [table - table[value] for table, value in zip(found, choice, strict=True)]


def _sides(graph: OpGraph) -> Iterator[Mapping[int, int]]:
    """Where a tensor forks, one branch on a processor and the others on the other one, and each branch by itself."""
    for branches in _forks(graph):
        for i, branch in enumerate(branches):
            others = [node for k, other in enumerate(branches) if k != i for node in other]
            for own, theirs in ((CPU, GPU), (GPU, CPU)):
                yield dict.fromkeys(branch, own) | dict.fromkeys(others, theirs)
        for branch in branches:
            for processor in (CPU, GPU):
                yield dict.fromkeys(branch, processor)


def _forks(graph: OpGraph) -> Iterator[list[tuple[int, ...]]]:
    """For each tensor that several operators read, the operators that only one of these leads to, for each of them."""
    readers: dict[int, list[int]] = {}
    for node, operator in enumerate(graph.operators):
        for tensor in dict.fromkeys(operator.inputs):
            readers.setdefault(tensor, []).append(node)
    behind: list[int] = [0] * len(graph.operators)  # sets of operators as bits
    for node in range(len(graph.operators) - 1, -1, -1):
        behind[node] = 1 << node
        for tensor in graph.operators[node].outputs:
            for reader in readers.get(tensor, ()):
                behind[node] |= behind[reader]
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for nodes in readers.values():
        if not 2 <= len(nodes) <= MOST_BRANCHES:
            continue
        found = []
        for node in nodes:
            own = behind[node]
            for other in nodes:
                own &= ~behind[other] if other != node else -1
            if own:
                found.append(tuple(_bits(own)))
        key = tuple(found)
        if len(found) >= 2 and key not in seen:
            seen.add(key)
            yield found


def _bits(number: int) -> Iterable[int]:
    return (i for i in range(number.bit_length()) if number >> i & 1)
