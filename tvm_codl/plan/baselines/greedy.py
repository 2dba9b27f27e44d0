"""Greedy chains: CoDL's search over costs that were measured, made as strong as those allow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tvm_codl.plan.baselines.chains import Charges, grow_chains, recompute_halos
from tvm_codl.plan.baselines.grid import CHANNELS, ROWS, Grid
from tvm_codl.plan.costs import Costs, build_costs
from tvm_codl.plan.eliminate import Table
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem


def greedy_chains(problem: Problem) -> Plan:
    """Chains grown as :func:`~tvm_codl.plan.baselines.codl.codl` grows them, with what that planner lacks.

    Every operator is charged with the transfers from its producers as they are placed so far.  A chain may have either
    dimension, and ends at an operator without it.  While chains grow, their halos are transferred; in the end they are
    recomputed where that plan is predicted to be faster.
    """
    grid = Grid(problem, (ROWS, CHANNELS))
    charges = _charges(build_costs(problem.graph, grid.options, problem.sharing, problem.axes))
    chosen, chains = grow_chains(grid, charges, dimensions=(0, 1))
    plans = [problem.plan(chosen, "greedy chains", chains)]
    recomputed = recompute_halos(problem, chosen, chains)
    if recomputed != chosen:
        plans.append(problem.plan(recomputed, "greedy chains with halo recompute", chains))
    # A plan says 0 of what is infinite.
    return min(plans, key=lambda plan: plan.predicted_ms or math.inf)


def _charges(costs: Costs) -> Charges:
    into: dict[int, list[tuple[int, Table]]] = {}
    for (a, b), table in costs.edges.items():
        into.setdefault(b, []).append((a, table))

    def inside(node: int, before: Sequence[int]) -> Table:
        total = costs.nodes[node].copy()
        for a, table in into.get(node, ()):
            total += table[before[a]]
        return total

    nothing = [np.zeros(len(table)) for table in costs.nodes]
    return Charges(nothing, nothing, inside)
