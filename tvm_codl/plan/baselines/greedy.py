"""Greedy chains: CoDL's search over costs that were measured, made as strong as those allow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from tvm_codl.graph.split import Axis, piece
from tvm_codl.plan.baselines.grid import CHANNELS, ROWS, TENTHS, Tenths
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import Costs, tables

#: Operators of one chain, as in CoDL's code.
LONGEST = 30


def greedy_chains(problem: Problem) -> Plan:
    """Chains grown greedily as :func:`~tvm_codl.plan.baselines.codl.codl` grows them, with what that planner lacks.

    Sharing is ours: an operator by itself, and every operator of a chain, is charged with what it takes from its producers
    as they are placed so far.  A chain may have either dimension, and ends at an operator without it.  While chains grow,
    rows at the edge of a cut are handed over; in the end the plan is taken in which both processors make them within a
    chain where that one is predicted to be faster.  Two or more operators are a chain where it is predicted to take no
    longer than its operators by themselves and gains at least as much as the best chain of that length so far.
    """
    operators = problem.graph.operators
    tenths = Tenths(problem, (ROWS, CHANNELS))
    cost = _Charged(tables(problem.graph, tenths.options, problem.sharing, problem.axes))
    choice: list[int] = []
    chains: list[int] = []
    while len(choice) < len(operators):
        start = len(choice)
        best = _best_chain(start, choice, tenths, cost) or [cost.own(start, choice)]
        number = max(chains, default=-1) + 1 if len(best) > 1 else -1
        choice += best
        chains += [number] * len(best)
    chosen = [tenths.options[o.id][value] for o, value in zip(operators, choice, strict=True)]
    handed = problem.plan(chosen, "greedy chains", chains)
    twice = made_twice(problem, [one.placement for one in chosen], chains)
    wanted = [(node, placement) for node, placement in enumerate(twice) if any(placement.over)]
    for (node, _), one in zip(wanted, problem.split(wanted), strict=True):
        chosen[node] = one
    if not wanted:
        return handed
    made = problem.plan(chosen, "greedy chains, the rows at a cut made twice", chains)
    # A plan says 0 of what is infinite.
    return min(handed, made, key=lambda plan: plan.predicted_ms or math.inf)


class _Charged:
    """What an operator adds to the plan's time, given the choices of all before it."""

    def __init__(self, costs: Costs) -> None:
        self._nodes = costs.nodes
        self._into: dict[int, list[tuple[int, np.ndarray]]] = {}
        for (a, b), table in costs.edges.items():
            self._into.setdefault(b, []).append((a, table))

    def all(self, node: int, before: Sequence[int]) -> np.ndarray:
        total = self._nodes[node].copy()
        for a, table in self._into.get(node, ()):
            total += table[before[a]]
        return total

    def own(self, node: int, before: Sequence[int]) -> int:
        return int(np.argmin(self.all(node, before)))


def _best_chain(start: int, choice: Sequence[int], tenths: Tenths, cost: _Charged) -> list[int] | None:
    """The choices of the chain from ``start`` that gains most over its operators by themselves; None where none gains."""
    alone, alone_ms = list(choice), [0.0]
    best: list[int] | None = None
    most = -1.0
    of_length: dict[int, float] = {}
    for dimension in range(tenths.dimensions):
        for tenth in (0, *TENTHS, 10):
            chain: list[int] = list(choice)
            chain_ms = 0.0
            while len(chain) - start < LONGEST:
                node = len(chain)
                value = tenths.value(node, dimension, tenth)
                if value is None:
                    break
                if len(alone) == node:
                    added = cost.all(node, alone)
                    alone.append(int(np.argmin(added)))
                    alone_ms.append(alone_ms[-1] + float(added[alone[-1]]))
                chain_ms += float(cost.all(node, chain)[value])
                chain.append(value)
                length = len(chain) - start
                if length == 1:
                    continue
                gain = alone_ms[length] - chain_ms
                if not gain >= max(0.0, of_length.get(length, 0.0)):  # an infinite time gains nothing either
                    break
                of_length[length] = gain
                if gain > most:
                    best, most = chain[start:], gain
    return best


def made_twice(problem: Problem, placed: Sequence[Placement], chains: Sequence[int]) -> list[Placement]:
    """The placements with overlaps, so that within a chain no operator takes anything from the other processor.

    An operator whose parts would become the whole of it, or are read along another axis, is left as it is.
    """
    operators = problem.graph.operators
    maker = {tensor: node for node, operator in enumerate(operators) for tensor in operator.outputs}
    found = list(placed)
    # By operator, up to where the CPU's parts behind it read, and from where the GPU's do.
    reads: dict[int, tuple[list[int], list[int]]] = {}
    for node in reversed(range(len(operators))):
        placement = found[node]
        if chains[node] < 0 or placement.on != "split":
            continue
        axis = problem.axes[operators[node].id][placement.axis]
        ends, starts = reads.get(node, ([], []))
        over = (_units(max([0, *(end - placement.at for end in ends)]), axis),
                _units(max([0, *(placement.at - start for start in starts)]), axis))  # fmt: skip
        if placement.at + over[0] < axis.extent and placement.at - over[1] > 0:
            found[node] = placement = replace(placement, over=over)
        for side, (lo, hi) in enumerate(placement.parts(axis.extent)):
            needs = piece(operators[node], problem.graph, axis.name, lo, hi).inputs
            for tensor, need in zip(operators[node].inputs, needs, strict=True):
                before = maker.get(tensor, -1)
                if before < 0 or chains[before] != chains[node] or placed[before].on != "split" or need is None:
                    continue
                if need.axis == problem.axes[operators[before].id][placed[before].axis].index:
                    reads.setdefault(before, ([], []))[side].append((need.hi, need.lo)[side])
    return found


def _units(count: int, axis: Axis) -> int:
    return -(-count // axis.granule) * axis.granule
