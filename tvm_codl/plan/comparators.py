"""Planners of others, over the same costs as ours and for the same executor: what our search is compared with.

Each returns a plan whose ``predicted_ms`` is its replay's, sharing included, whatever the planner itself left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import lcm

import numpy as np
from msgspec.structs import replace

from tvm_codl.graph.opgraph import Operator
from tvm_codl.graph.split import Axis, piece
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import Costs, tables

#: Shares of the CPU, in tenths, at which these planners cut.
TENTHS = range(1, 10)
#: The output channels of a convolution, and what corresponds to them in a product; likewise its rows.
CHANNELS = ("channels", "columns")
ROWS = ("height", "rows")
#: Channels are cut in vectors of four where the axis has as many: a lone channel would pay for a whole one.
VECTOR = 4
#: Operators of one chain, as in CoDL's code.
LONGEST = 30


def layer_wise(problem: Problem) -> Plan:
    """Each operator whole on its faster processor; what the crossings cost is not looked at."""
    return problem.plan([_faster(problem, o) for o in problem.graph.operators], "layer-wise: the faster processor")


def one_ratio(problem: Problem) -> Plan:
    """All operators that have output channels are split along them, in one ratio; the others run on their faster processor.

    That is muLayer's channel-wise workload distribution (Kim et al., EuroSys 2019) with one ratio for the whole network.
    The ratio is the one, of the tenths, whose replay is the shortest.  Where a tenth rounds to nothing, or an operator
    runs on one processor only, that operator is whole on its faster one.
    """
    tenths = _Tenths(problem, (CHANNELS,))
    plans = []
    for tenth in TENTHS:
        chosen = []
        for node, operator in enumerate(problem.graph.operators):
            value = tenths.value(node, 0, tenth)
            one = tenths.options[operator.id][value] if value is not None else None
            chosen.append(one if one is not None and np.isfinite(one.ms) else _faster(problem, operator))
        plans.append(problem.plan(chosen, f"one ratio: {tenth} tenths of the channels on the cpu"))
    return min(plans, key=lambda plan: plan.predicted_ms)


def greedy_chains(problem: Problem) -> Plan:
    """CoDL's search (Jia et al., MobiSys 2022, hybrid-dimension partitioning and operator chains).

    It follows what CoDL's public code does (``ChainSearch::OptimalPartitionProfileOrPredict`` and ``Greedy``):

    1. Each operator by itself chooses a dimension, rows or output channels, and a ratio in tenths, nothing and all
       included, by its predicted latency.
    2. From the first operator on, for every ratio a chain is grown, operator by operator in the network's order, while
       the chain is predicted to take no longer than its operators by themselves and gains at least as much as the best
       chain of that length so far.  The chain that gains most is kept, and the search goes on behind it; where none
       gains, the operator keeps its own choice.

    Decided here, where that code is bound to its executor: latencies and sharing are ours, so an operator by itself is
    charged with what it takes from its producers as they are placed so far, and so is a chain's.  A chain may have either
    dimension (CoDL's have rows), and ends at an operator without it.  A cut is rounded to the nearest legal one, channels to
    :data:`VECTOR`.  While chains grow, rows at the edge of a cut are handed over; in the end the plan is taken in which
    both processors make them within a chain, as in CoDL's, where that one is predicted to be faster.
    """
    operators = problem.graph.operators
    tenths = _Tenths(problem, (ROWS, CHANNELS))
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
    twice = _made_twice(problem, [one.placement for one in chosen], chains)
    wanted = [(node, placement) for node, placement in enumerate(twice) if any(placement.over)]
    for (node, _), one in zip(wanted, problem.split(wanted), strict=True):
        chosen[node] = one
    if not wanted:
        return handed
    made = problem.plan(chosen, "greedy chains, the rows at a cut made twice", chains)
    return min(handed, made, key=lambda plan: plan.predicted_ms)


COMPARATORS: Mapping[str, Callable[[Problem], Plan]] = {
    "layer_wise": layer_wise,
    "one_ratio": one_ratio,
    "greedy_chains": greedy_chains,
}


class _Tenths:
    """Every operator whole, and cut in tenths along its first axis of each dimension (a tuple of names).

    ``options`` start with cpu and gpu.
    """

    def __init__(self, problem: Problem, dimensions: Sequence[Sequence[str]]) -> None:
        self.dimensions = len(dimensions)
        self._values: dict[tuple[int, int, int], int] = {}
        wanted: dict[tuple[int, Placement], list[tuple[int, int, int]]] = {}
        for node, operator in enumerate(problem.graph.operators):
            legal = problem.axes.get(operator.id, {})
            for dimension, names in enumerate(dimensions):
                axis = next((legal[name] for name in names if name in legal), None)
                if axis is None:
                    continue
                self._values |= {(node, dimension, 0): 1, (node, dimension, 10): 0}
                for tenth in TENTHS:
                    at = nearest_cut(axis, tenth / 10)
                    if 0 < at < axis.extent:
                        cut = (node, Placement("split", axis.name, at))
                        wanted.setdefault(cut, []).append((node, dimension, tenth))
                    else:
                        self._values[node, dimension, tenth] = 0 if at else 1
        self.options: dict[int, tuple[Candidate, ...]] = {o.id: problem.whole(o.id) for o in problem.graph.operators}
        for (node, _), keys, one in zip(wanted, wanted.values(), problem.split(list(wanted)), strict=True):
            id = problem.graph.operators[node].id
            self._values |= dict.fromkeys(keys, len(self.options[id]))
            self.options[id] += (one,)

    def value(self, node: int, dimension: int, tenth: int) -> int | None:
        """The number of the option with so many tenths on the CPU; None for an operator without that dimension."""
        return self._values.get((node, dimension, tenth))


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


def _best_chain(start: int, choice: Sequence[int], tenths: _Tenths, cost: _Charged) -> list[int] | None:
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


def _made_twice(problem: Problem, placed: Sequence[Placement], chains: Sequence[int]) -> list[Placement]:
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


def nearest_cut(axis: Axis, share: float) -> int:
    """The multiple of the axis's granule (for channels, of :data:`VECTOR` too if it has room for two) nearest to
    ``share`` of its extent; 0 or the extent where that is nearest."""
    unit = lcm(axis.granule, VECTOR) if axis.name in CHANNELS else axis.granule
    if axis.extent < 2 * unit:
        unit = axis.granule
    return min(round(share * axis.extent / unit) * unit, axis.extent)


def _faster(problem: Problem, operator: Operator) -> Candidate:
    return min(problem.whole(operator.id), key=lambda one: one.ms)
