"""Chains: growing runs of operators greedily, as CoDL's search does, whatever an operator in one is charged with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from tvm_codl.graph.split import Axis, piece
from tvm_codl.plan.baselines.grid import STEPS, Grid
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.eliminate import Table
from tvm_codl.plan.problem import Problem

#: Operators of one chain, as in CoDL's code.
LONGEST = 30


@dataclass(frozen=True)
class Charges:
    """Milliseconds for each option of an operator (by node): what a chain that it begins or ends is charged with, and
    ``inside(node, before)``, what it adds to the chain, given the choices of all operators before it."""

    begins: Sequence[Table]
    ends: Sequence[Table]
    inside: Callable[[int, Sequence[int]], Table]

    def alone(self, node: int, before: Sequence[int]) -> Table:
        """Of a chain of this operator."""
        result: Table = self.begins[node] + self.inside(node, before)
        return result


def grow_chains(grid: Grid, charges: Charges, dimensions: Sequence[int]) -> tuple[list[Candidate], list[int]]:
    """An option and a chain's number (-1 for none) for each operator.

    From the first operator on, a chain is grown for every dimension and share, operator by operator in the network's order,
    while it takes no longer than its operators by themselves and gains at least as much as the best chain of that length so
    far.  The chain that gains most is kept, and the search goes on behind it; where none gains, the operator keeps its own
    best option.
    """
    choice: list[int] = []
    chains: list[int] = []
    while len(choice) < len(charges.begins):
        best = _best_chain(choice, grid, charges, dimensions) or [int(np.argmin(charges.alone(len(choice), choice)))]
        number = max(chains, default=-1) + 1 if len(best) > 1 else -1
        choice += best
        chains += [number] * len(best)
    return [options[value] for options, value in zip(grid.options.values(), choice, strict=True)], chains


def _best_chain(before: Sequence[int], grid: Grid, charges: Charges, dimensions: Sequence[int]) -> list[int] | None:
    """The options of the chain behind ``before`` that gains most; None where none gains."""
    start = len(before)
    alone, alone_ms = list(before), [0.0]
    best: list[int] | None = None
    most = -1.0
    of_length: dict[int, float] = {}
    for dimension in dimensions:
        for step in (0, *STEPS, 10):
            chain, inside_ms = list(before), 0.0
            while len(chain) - start < LONGEST:
                node = len(chain)
                value = grid.value(node, dimension, step)
                if value is None:
                    break
                if len(alone) == node:
                    own = charges.alone(node, alone)
                    alone.append(int(np.argmin(own)))
                    alone_ms.append(alone_ms[-1] + float(own[alone[-1]]))
                inside_ms += float(charges.inside(node, chain)[value])
                chain.append(value)
                length = len(chain) - start
                if length == 1:
                    continue
                chain_ms = float(charges.begins[start][chain[start]]) + inside_ms + float(charges.ends[node][value])
                gain = alone_ms[length] - chain_ms
                if not gain >= max(0.0, of_length.get(length, 0.0)):  # an infinite time gains nothing either
                    break
                of_length[length] = gain
                if gain > most:
                    best, most = chain[start:], gain
    return best


def recompute_halos(problem: Problem, chosen: Sequence[Candidate], chains: Sequence[int]) -> list[Candidate]:
    """The candidates with halo recompute, so that within a chain no operator needs a transfer.

    An operator whose parts would become the whole of it, or are read along another axis, is left as it is.
    """
    operators = problem.graph.operators
    maker = {tensor: node for node, operator in enumerate(operators) for tensor in operator.outputs}
    placed = [candidate.placement for candidate in chosen]
    # By operator, up to where the CPU's parts behind it read, and from where the GPU's do.
    reads: dict[int, tuple[list[int], list[int]]] = {}
    wider = []
    for node in reversed(range(len(operators))):
        placement = placed[node]
        if chains[node] < 0 or placement.on != "split":
            continue
        axis = problem.axes[operators[node].id][placement.axis]
        ends, starts = reads.get(node, ([], []))
        over = (_round_up(max([0, *(end - placement.at for end in ends)]), axis),
                _round_up(max([0, *(placement.at - start for start in starts)]), axis))  # fmt: skip
        if any(over) and placement.at + over[0] < axis.extent and placement.at - over[1] > 0:
            placement = replace(placement, over=over)
            wider.append((node, placement))
        for side, (lo, hi) in enumerate(placement.parts(axis.extent)):
            needs = piece(operators[node], problem.graph, axis.name, lo, hi).inputs
            for tensor, need in zip(operators[node].inputs, needs, strict=True):
                before = maker.get(tensor, -1)
                if before < 0 or chains[before] != chains[node] or placed[before].on != "split" or need is None:
                    continue
                if need.axis == problem.axes[operators[before].id][placed[before].axis].index:
                    reads.setdefault(before, ([], []))[side].append((need.hi, need.lo)[side])
    result = list(chosen)
    for (node, _), candidate in zip(wider, problem.split(wider), strict=True):
        result[node] = candidate
    return result


def _round_up(count: int, axis: Axis) -> int:
    return -(-count // axis.granule) * axis.granule
