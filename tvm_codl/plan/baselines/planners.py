"""Planners: those of others, over our costs and for our executor, with which the search is compared.

Each returns a plan whose ``predicted_ms`` includes all transfers, whatever the planner itself left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tvm_codl.graph.opgraph import Operator
from tvm_codl.plan.baselines.codl import codl
from tvm_codl.plan.baselines.greedy import greedy_chains
from tvm_codl.plan.baselines.grid import CHANNELS, STEPS, Grid
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem


def layer_wise(problem: Problem) -> Plan:
    """Each operator whole on its faster processor, transfers ignored."""
    return problem.plan([_faster(problem, o) for o in problem.graph.operators], "layer-wise: the faster processor")


def one_ratio(problem: Problem) -> Plan:
    """Operators with output channels are split along them in one ratio; the others run on their faster processor.

    That is muLayer's channel-wise workload distribution (Kim et al., EuroSys 2019) with one ratio for the whole network: the
    tenths whose plan is predicted to be the fastest.  Where the share rounds to nothing, or an operator runs on one
    processor only, that operator is whole on its faster one.
    """
    grid = Grid(problem, (CHANNELS,))
    plans = []
    for step in STEPS:
        chosen = []
        for node, operator in enumerate(problem.graph.operators):
            value = grid.value(node, 0, step)
            split = grid.options[operator.id][value] if value is not None else None
            chosen.append(split if split and np.isfinite(split.ms) else _faster(problem, operator))
        plans.append(problem.plan(chosen, f"one ratio: {step} tenths of the channels on the cpu"))
    return min(plans, key=lambda plan: plan.predicted_ms)


PLANNERS: Mapping[str, Callable[[Problem], Plan]] = {
    "layer_wise": layer_wise,
    "one_ratio": one_ratio,
    "codl": codl,
    "greedy_chains": greedy_chains,
}


def _faster(problem: Problem, operator: Operator) -> Candidate:
    return min(problem.whole(operator.id), key=lambda candidate: candidate.ms)
