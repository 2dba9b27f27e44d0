"""A plan on the phone, checked operator by operator: which of them brings how much of the error into the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.measure.answers import FLOAT16_TOLERANCE, TOLERANCE, answer_errors
from tvm_codl.measure.choices import check_settings
from tvm_codl.measure.context import Context
from tvm_codl.measure.host_outputs import Values, host_outputs
from tvm_codl.measure.plan_libraries import open_library, open_plans
from tvm_codl.plan.files import parse_plan
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.verify import verify_plan
from tvm_codl.relay.observed import beside, observe
from tvm_codl.relay.prepared import Prepared
from tvm_codl.relay.quanta import OF_RANGE
from tvm_codl.runtime.comodule import CoModule


class OperatorError(msgspec.Struct, frozen=True):
    """Errors of one operator on the phone, relative to its result's largest magnitude; infinite for another shape.

    ``max_rel_err`` is against the network on this computer.  ``own`` is against the operator on this computer from the
    inputs that it had on the phone: what it adds itself.  ``share`` is its part of the sum of all operators' ``own``.
    """

    operator: int
    name: str
    placement: Placement
    max_rel_err: float
    own: float
    share: float


class PlanCheck(msgspec.Struct, frozen=True):
    """``max_rel_err``: of the library's answer against the reference's; ``allowed``: what a right one has at most;
    ``operators``: all that compute, worst first."""

    max_rel_err: float
    allowed: float
    operators: tuple[OperatorError, ...]

    @property
    def wrong(self) -> list[OperatorError]:
        """Those whose own error is not allowed."""
        return [line for line in self.operators if not line.own <= self.allowed]


def check_plan(prepared: Prepared, plan: Plan | Path, context: Context, inputs: Values) -> PlanCheck:
    """Runs a library, ``plan`` itself or one built by it, and a second one that keeps every operator's result.

    Raises :class:`UserError` where the network does not compile, on this computer or for the phone, and for a library
    of another network.
    """
    if isinstance(plan, Path):
        module = open_library(plan, context.phone)
        plan = _plan_of(module, str(plan))
        verify_plan(plan, prepared.graph, prepared.axes)
    else:
        check_settings(plan.settings, context.profile)
        module = open_plans(prepared, {"": plan}, context)[""]
    answer = module.run(inputs)
    allowed = FLOAT16_TOLERANCE if plan.settings.gpu_float == "float16" else TOLERANCE
    error = answer_errors(answer, reference_outputs(prepared.model, inputs), prepared.quanta)[1]
    return PlanCheck(error, allowed, _operator_errors(prepared, plan, context, inputs))


def _plan_of(module: CoModule, source: str) -> Plan:
    """The plan that a library was built by; of several its first."""
    about = module.about
    return parse_plan(msgspec.json.encode(about.plans[0].plan if about.plans else about.plan), source)


def _operator_errors(prepared: Prepared, plan: Plan, context: Context, inputs: Values) -> tuple[OperatorError, ...]:
    observed = observe(prepared)
    graph = observed.graph
    placements = {line.operator: line.placement for line in plan.operators}
    kept = replace(plan, operators=plan.operators[: len(graph.operators)])
    module = open_plans(observed, {"": kept}, context)[""]
    found = dict(zip(graph.outputs, module.run(inputs), strict=True))
    values = found | {tensor: inputs[graph.tensors[tensor].name] for tensor in graph.inputs}
    right = host_outputs(beside(observed), {f"tensor{tensor}": value for tensor, value in values.items()})
    wanted, alone = (dict(zip(graph.outputs, part, strict=True)) for part in (right[: len(found)], right[len(found) :]))

    steps = tensor_quanta(graph)

    def error(tensors: Sequence[int], right: dict[int, np.ndarray]) -> float:
        pairs = [_finite(found[tensor], right[tensor]) for tensor in tensors]
        return answer_errors([got for got, _ in pairs], [want for _, want in pairs], [steps[t] for t in tensors])[1]

    own = {operator.id: error(operator.outputs, alone) for operator in graph.operators}
    total = sum(min(value, _MOST) for value in own.values())
    lines = [
        OperatorError(
            operator.id,
            operator.name,
            placements[operator.id],
            error(operator.outputs, wanted),
            own[operator.id],
            min(own[operator.id], _MOST) / total if total else 0.0,
        )
        for operator in graph.operators
    ]
    return tuple(sorted(lines, key=lambda line: (-line.own, -line.max_rel_err)))


def tensor_quanta(graph: OpGraph) -> dict[int, float]:
    """As :func:`.quanta_of`, of all tensors by id: integers of eight bits in a network that is quantised are one apart."""
    if not any(node.op == "reinterpret" for operator in graph.operators for node in operator.body):
        return {tensor.id: 0.0 for tensor in graph.tensors}
    steps = {"int8": 1.0, "uint8": 1.0, "float32": OF_RANGE}
    return {tensor.id: steps.get(tensor.dtype, 0.0) for tensor in graph.tensors}


#: Stands for an infinite error in a sum.
_MOST = math.sqrt(np.finfo(float).max)


def _finite(got: np.ndarray, want: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both without what is infinite in both, as masks are before a softmax."""
    if got.shape != want.shape or np.isfinite(want).all():
        return got, want
    same = ~np.isfinite(want) & ((got == want) | (np.isnan(got) & np.isnan(want)))
    return np.where(same, 0, got), np.where(same, 0, want)
