"""The pass that marks each operator of a prepared module with its placement."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relay

from tvm_codl.graph.split import axes
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.verify import verify_plan
from tvm_codl.relay.extract import read_kept
from tvm_codl.relay.walk import rewrite, with_types

PLACEMENT, CHAIN = "codl.placement", "codl.chain"


def AnnotateCoExecution(plan: Plan) -> tvm.transform.Pass:
    """Marks every primitive function of a prepared module with its placement in ``plan``.

    The function attribute ``codl.placement`` is ``cpu``, ``gpu``, ``split:AXIS:AT`` or, for pieces that overlap,
    ``split:AXIS:AT:CPU:GPU``; ``codl.chain`` is the chain's number.  Raises UserError, with operator and reason, for a
    plan that is not legal for this network.
    """

    def annotate(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        mod = with_types(mod)
        graph, _weights, calls = read_kept(mod)
        verify_plan(plan, graph, {operator.id: axes(operator, graph) for operator in graph.operators})
        placed = {planned.operator: planned for planned in plan.operators}
        marks = {call: placed[id] for id, call in calls.items()}

        def mark(expr: relay.Expr, new: Sequence[relay.Expr]) -> relay.Expr | None:
            if expr not in marks:
                return None
            function = expr.op.with_attr(PLACEMENT, to_text(marks[expr].placement))
            return relay.Call(function.with_attr(CHAIN, marks[expr].chain), list(new), expr.attrs)

        return rewrite(mod, mark)

    return tvm.transform.module_pass(annotate, opt_level=0, name="AnnotateCoExecution")


def to_text(placement: Placement) -> str:
    if placement.on != "split":
        return placement.on
    over = placement.over if any(placement.over) else ()
    return ":".join(["split", placement.axis, *(str(units) for units in (placement.at, *over))])


def from_text(text: str) -> Placement:
    if not text.startswith("split:"):
        return Placement(text)  # type: ignore[arg-type]
    _, axis, at, *over = text.split(":")
    return Placement("split", axis, int(at), (int(over[0]), int(over[1])) if over else (0, 0))
