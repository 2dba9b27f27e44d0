"""Plans that a person might type, for networks of every kind."""

from __future__ import annotations

import tvm_codl as codl
from tvm_codl.plan.candidates import legal_cuts
from tvm_codl.plan.plan import PlannedOperator
from tvm_codl.relay.prepared import Prepared


def every_operator_split(prepared: Prepared) -> codl.Plan:
    """Each operator cut in the middle of one of its axes, another than its neighbour's; what cannot be cut takes turns."""
    lines = []
    for operator in prepared.graph.operators:
        axes = [axis for axis in prepared.axes[operator.id].values() if legal_cuts(axis)]
        placement = codl.Placement("gpu" if operator.id % 2 else "cpu")
        if axes:
            axis = axes[operator.id % len(axes)]
            cuts = legal_cuts(axis)
            placement = codl.Placement("split", axis.name, cuts[len(cuts) // 2])
        lines.append(PlannedOperator(operator.id, operator.name, placement))
    plan = codl.Plan(prepared.name, "by hand", tuple(lines))
    codl.verify_plan(plan, prepared.graph, prepared.axes)
    return plan
