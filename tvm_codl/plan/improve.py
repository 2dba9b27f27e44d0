"""Improve: local search from good plans, moving one operator or one branch at a time.

The exact search adds operators up; a simulated run also overlaps branches and lets a processor run ahead, so a plan of a
larger sum may take less time.  Moves are tried in the order of their sums, and kept if they shorten the simulated run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.costs import Costs
from tvm_codl.plan.simulate import CPU, GPU

Choice = tuple[int, ...]
Score = Callable[[Choice], float]

#: Limits of simulated plans, and of operators in all of them: a hundred operators take about a millisecond.
MOST_SIMULATIONS = 60
MOST_SIMULATED_OPERATORS = 6000
#: Smaller relative gains are no improvement.
LEAST_GAIN = 1e-6
#: Limit of branches of a fork that are tried on the two processors.
MOST_BRANCHES = 4


def improve(costs: Costs, starts: Sequence[Choice], score: Score, most: int = MOST_SIMULATIONS) -> Choice:
    """The best choice found with ``most`` calls of ``score``, those of ``starts`` not counted.

    Candidate 0 is the CPU, 1 the GPU.  The result never scores worse than the best of ``starts``, of which the first wins a
    tie; equal inputs give equal plans.
    """
    scores = {start: score(start) for start in dict.fromkeys(starts)}
    best = min(scores, key=scores.__getitem__)
    if not np.isfinite(scores[best]):
        return best
    tried, left = dict(scores), min(most, MOST_SIMULATED_OPERATORS // len(best))
    sides = list(islice(_sides(costs.graph), left))
    for start in sorted(scores, key=scores.__getitem__)[:2]:
        choice, at, moved = start, scores[start], True
        while moved and left > 0:
            moved = False
            for trial in _moves(choice, costs, sides, left):
                if trial in tried:
                    continue
                tried[trial] = reached = score(trial)
                left -= 1
                if reached < at * (1 - LEAST_GAIN):
                    choice, at, moved = trial, reached, True
                    break
                if left <= 0:
                    break
        if at < tried[best]:
            best = choice
    return best


def _moves(choice: Choice, costs: Costs, sides: Sequence[Mapping[int, int]], most: int) -> Iterator[Choice]:
    """Plans that differ in a branch, then those that differ in one operator, the smallest sums first."""
    for side in sides:
        if all(np.isfinite(costs.nodes[node][value]) for node, value in side.items()):
            yield tuple(side.get(node, value) for node, value in enumerate(choice))
    cheap = sorted(
        (float(table[value]), node, value)
        for node, table in enumerate(costs.growth(choice))
        for value in np.argsort(table, kind="stable")[:4].tolist()
        if value != choice[node] and np.isfinite(table[value])
    )
    for _, node, value in islice(cheap, most):
        yield (*choice[:node], value, *choice[node + 1 :])


def _sides(graph: OpGraph) -> Iterator[Mapping[int, int]]:
    """Where a tensor forks: one branch on a processor and the others on the other one, and each branch by itself."""
    for branches in _forks(graph):
        for i, branch in enumerate(branches):
            others = [node for k, other in enumerate(branches) if k != i for node in other]
            for own, theirs in ((CPU, GPU), (GPU, CPU)):
                yield dict.fromkeys(branch, own) | dict.fromkeys(others, theirs)
        for branch in branches:
            for processor in (CPU, GPU):
                yield dict.fromkeys(branch, processor)


def _forks(graph: OpGraph) -> Iterator[list[tuple[int, ...]]]:
    """For each tensor with several readers, each reader's branch: the operators that no other of the readers leads to."""
    readers: dict[int, list[int]] = {}
    for node, operator in enumerate(graph.operators):
        for tensor in dict.fromkeys(operator.inputs):
            readers.setdefault(tensor, []).append(node)
    behind: dict[int, set[int]] = {}
    for node, operator in reversed([*enumerate(graph.operators)]):
        behind[node] = {node}.union(*(behind[reader] for out in operator.outputs for reader in readers.get(out, ())))
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for nodes in readers.values():
        if not 2 <= len(nodes) <= MOST_BRANCHES:
            continue
        own = (behind[node].difference(*(behind[other] for other in nodes if other != node)) for node in nodes)
        branches = tuple(tuple(sorted(branch)) for branch in own if branch)
        if len(branches) >= 2 and branches not in seen:
            seen.add(branches)
            yield list(branches)
