"""CoDL's planner (Jia et al., MobiSys 2022: hybrid-dimension partitioning and operator chains), as its public code has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_codl.plan.baselines.greedy import LONGEST, made_twice
from tvm_codl.plan.baselines.grid import CHANNELS, ROWS, TENTHS, Tenths
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import Costs, tables

#: The options of every operator begin with these.
ON_GPU = 1
#: The dimension of chains among those of the options.
IN_ROWS = 0


def codl(problem: Problem) -> Plan:
    """What CoDL's search makes of our costs of operators and of sharing.

    It follows CoDL's ``ChainSearch::OptimalPartitionProfileOrPredict`` and ``ChainSearch::Greedy``, with latencies from
    its ``OpChainLatencyPredictor``:

    1. Each operator by itself chooses a dimension, rows or output channels, and a ratio in tenths, nothing and all
       included, by its predicted latency.
    2. From the first operator on, for every ratio a chain in rows is grown, operator by operator in the network's order,
       while the chain is predicted to take no longer than its operators by themselves and gains at least as much as the
       best chain of that length so far.  The chain that gains most is kept, and the search goes on behind it; where none
       gains, the operator keeps its own choice.
    3. Tensors rest on the GPU between chains.  A chain is charged with what its first operator's CPU part takes over, one
       wait included, and from two operators on with what its last one's hands back; nothing is charged for what the
       neighbouring chains do, nor for rows handed over inside: within a chain both processors make those.

    A cut is rounded to the nearest legal one, channels to vectors.  An operator without rows ends a chain.
    """
    tenths = Tenths(problem, (ROWS, CHANNELS))
    charged = _Charged(tables(problem.graph, tenths.options, problem.sharing, problem.axes), problem)
    operators = problem.graph.operators
    choice: list[int] = []
    chains: list[int] = []
    while len(choice) < len(operators):
        start = len(choice)
        best = _best_chain(start, tenths, charged) or [charged.own(start)]
        number = max(chains, default=-1) + 1 if len(best) > 1 else -1
        choice += best
        chains += [number] * len(best)
    chosen = [tenths.options[o.id][value] for o, value in zip(operators, choice, strict=True)]
    twice = made_twice(problem, [one.placement for one in chosen], chains)
    wanted = [(node, placement) for node, placement in enumerate(twice) if any(placement.over)]
    for (node, _), one in zip(wanted, problem.split(wanted), strict=True):
        chosen[node] = one
    return problem.plan(chosen, "CoDL's chains", chains)


class _Charged:
    """Milliseconds for each option of an operator: ``work``, and what a chain that it begins or ends is charged with."""

    def __init__(self, costs: Costs, problem: Problem) -> None:
        self.work = costs.work
        sharing = problem.sharing
        taken = [np.zeros((3, len(table))) for table in costs.work]
        self.ends = [np.zeros(len(table)) for table in costs.work]
        for (a, b), found in costs.crossings.items():
            taken[b] += np.stack([found.to_cpu[ON_GPU], found.to_gpu[ON_GPU], found.relayout[ON_GPU]])
            given = sharing.bytes_ms(found.to_cpu[:, ON_GPU], found.to_gpu[:, ON_GPU], found.relayout[:, ON_GPU])
            self.ends[a] = np.maximum(self.ends[a], given)
        self.begins = [sharing.edge_ms(*each) for each in taken]

    def alone(self, node: int) -> np.ndarray:
        return self.begins[node] + self.work[node]

    def own(self, node: int) -> int:
        return int(np.argmin(self.alone(node)))


def _best_chain(start: int, tenths: Tenths, charged: _Charged) -> Sequence[int] | None:
    """The options of the chain from ``start`` that gains most over its operators by themselves; None where none gains."""
    best: list[int] | None = None
    most = -1.0
    of_length: dict[int, float] = {}
    for tenth in (0, *TENTHS, 10):
        chain: list[int] = []
        worked = alone_ms = 0.0
        while len(chain) < LONGEST and start + len(chain) < len(charged.work):
            node = start + len(chain)
            value = tenths.value(node, IN_ROWS, tenth)
            if value is None:
                break
            chain.append(value)
            alone_ms += float(charged.alone(node).min())
            worked += float(charged.work[node][value])
            if len(chain) == 1:
                continue
            chain_ms = float(charged.begins[start][chain[0]]) + worked + float(charged.ends[node][value])
            gain = alone_ms - chain_ms
            if not gain >= max(0.0, of_length.get(len(chain), 0.0)):  # an infinite time gains nothing either
                break
            of_length[len(chain)] = gain
            if gain > most:
                best, most = list(chain), gain
    return best
