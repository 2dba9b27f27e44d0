"""CoDL's planner (Jia et al., MobiSys 2022: hybrid-dimension partitioning and operator chains), as its public code has it."""

from __future__ import annotations

import numpy as np

from tvm_codl.plan.baselines.chains import Charges, grow_chains, recompute_halos
from tvm_codl.plan.baselines.grid import CHANNELS, ROWS, Grid
from tvm_codl.plan.costs import Costs, build_costs
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem

#: The options of every operator begin with the CPU and the GPU.
ON_GPU = 1


def codl(problem: Problem) -> Plan:
    """CoDL's search over our costs of operators and transfers.

    It follows CoDL's ``ChainSearch::OptimalPartitionProfileOrPredict`` and ``ChainSearch::Greedy``, with latencies from
    its ``OpChainLatencyPredictor``:

    1. Each operator by itself chooses a dimension, rows or output channels, and a ratio in tenths, nothing and all
       included, by its predicted latency.
    2. Chains in rows are grown over the operators (:func:`.chains.grow_chains`).
    3. Tensors rest on the GPU between chains.  A chain is charged with what its first operator's CPU part takes over, one
       wait included, and from two operators on with what its last one's hands back; nothing is charged for what the
       neighbouring chains do, nor for rows handed over inside: within a chain both processors compute those.

    A cut is rounded to the nearest legal one, channels to vectors.  An operator without rows ends a chain.
    """
    grid = Grid(problem, (ROWS, CHANNELS))
    charges = _charges(build_costs(problem.graph, grid.options, problem.sharing, problem.axes))
    chosen, chains = grow_chains(grid, charges, dimensions=(0,))
    return problem.plan(recompute_halos(problem, chosen, chains), "CoDL's chains", chains)


def _charges(costs: Costs) -> Charges:
    sharing = costs.sharing
    taken = [np.zeros((3, len(table))) for table in costs.work]
    ends = [np.zeros(len(table)) for table in costs.work]
    for (a, b), bytes in costs.crossings.items():
        taken[b] += np.stack([table[ON_GPU] for table in bytes.tables])
        ends[a] = np.maximum(ends[a], sharing.bytes_ms(*(table[:, ON_GPU] for table in bytes.tables)))
    return Charges([sharing.edge_ms(*each) for each in taken], ends, lambda node, _: costs.work[node])
