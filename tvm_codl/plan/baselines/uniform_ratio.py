"""Planners of others, over the same costs as ours and for the same executor: what our search is compared with.

Each returns a plan whose ``predicted_ms`` is its replay's, sharing included, whatever the planner itself left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tvm_codl.graph.opgraph import Operator
from tvm_codl.plan.baselines.codl import codl
from tvm_codl.plan.baselines.greedy import greedy_chains
from tvm_codl.plan.baselines.grid import CHANNELS, TENTHS, Tenths
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem


def layer_wise(problem: Problem) -> Plan:
    """Each operator whole on its faster processor; what the crossings cost is not looked at."""
    return problem.plan([_faster(problem, o) for o in problem.graph.operators], "layer-wise: the faster processor")


def one_ratio(problem: Problem) -> Plan:
    """All operators that have output channels are split along them, in one ratio; the others run on their faster processor.

    That is muLayer's channel-wise workload distribution (Kim et al., EuroSys 2019) with one ratio for the whole network.
    The ratio is the one, of the tenths, whose replay is the shortest.  Where a tenth rounds to nothing, or an operator
    runs on one processor only, that operator is whole on its faster one.
    """
    tenths = Tenths(problem, (CHANNELS,))
    plans = []
    for tenth in TENTHS:
        chosen = []
        for node, operator in enumerate(problem.graph.operators):
            value = tenths.value(node, 0, tenth)
            one = tenths.options[operator.id][value] if value is not None else None
            chosen.append(one if one is not None and np.isfinite(one.ms) else _faster(problem, operator))
        plans.append(problem.plan(chosen, f"one ratio: {tenth} tenths of the channels on the cpu"))
    return min(plans, key=lambda plan: plan.predicted_ms)


COMPARATORS: Mapping[str, Callable[[Problem], Plan]] = {
    "layer_wise": layer_wise,
    "one_ratio": one_ratio,
    "codl": codl,
    "greedy_chains": greedy_chains,
}


def _faster(problem: Problem, operator: Operator) -> Candidate:
    return min(problem.whole(operator.id), key=lambda one: one.ms)
