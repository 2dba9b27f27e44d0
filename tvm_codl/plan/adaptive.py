"""An adaptive set: plans of one network for a phone in several states, among which the co-executor chooses as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.errors import UserError
from tvm_codl.plan.aligned import MOST_ALIGNED, MOST_WINDOWS
from tvm_codl.plan.candidates import Candidate, Predictor, Stepped, candidates
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

StateName = Literal["calm", "cpu busy", "gpu throttled"]
#: Limit of aligned placements of one operator (:mod:`.aligned`), where long chains are wanted.
MOST_FOLLOWING = 32


class PhoneState(msgspec.Struct, frozen=True):
    """``cpu`` and ``gpu``: factors of a calm phone's times; ``wait_ms``: the least cost of each wait.

    ``end_ms``: added to a run that ends with work of the CPU.
    ``windows``: how many windows' rows may be recomputed so that the processors need not wait.
    """

    name: str
    state: StateName
    cpu: float = 1.0
    gpu: float = 1.0
    wait_ms: float = 0.0
    end_ms: float = 0.0
    windows: int = MOST_WINDOWS


#: A process that competes for the CPU's cores gets half of them, in turns of half a millisecond (the co-executor's
#: metronome).  The CPU's thread sleeps while it waits, and the GPU then waits for the rest of the other process's turn: few
#: waits, and CPU parts that end early, lose less; after the last CPU part nothing hides the loss.  Where turns last 4 ms,
#: the kernel's clock, the fewest waits are best.  Waiting for the GPU's end may happen on any core.  A GPU that gets too hot
#: typically halves its clock.
STATES = (
    PhoneState("cpu busy", "cpu busy", cpu=2.2, wait_ms=0.1, end_ms=0.1, windows=8),
    PhoneState("cpu busier", "cpu busy", cpu=2.5, wait_ms=0.1, end_ms=0.1, windows=8),
    PhoneState("cpu busy, few meetings", "cpu busy", cpu=2.2, wait_ms=0.2, end_ms=0.3, windows=8),
    PhoneState("cpu busy, fewest meetings", "cpu busy", cpu=2.0, wait_ms=0.6, end_ms=2.0, windows=8),
    PhoneState("gpu throttled", "gpu throttled", gpu=2.0),
)


class StatePlan(msgspec.Struct, frozen=True):
    """One plan of the set: the first one's ``state`` is calm."""

    name: str
    state: StateName
    plan: Plan


class StateModel:
    """The cost model of a phone in a state."""

    def __init__(self, model: Predictor, state: PhoneState) -> None:
        self.model, self.factors = model, {"cpu": state.cpu, "gpu": state.gpu}

    def predict(self, workloads: Sequence[Workload], processor: Processor) -> NDArray[np.float64]:
        return self.model.predict(workloads, processor) * self.factors[processor]

    def steps(self, workloads: Sequence[Workload]) -> list[dict[str, int]]:
        """Tiles do not change."""
        return self.model.steps(workloads) if isinstance(self.model, Stepped) else [{} for _ in workloads]


def adaptive_plans(problem: Problem, first: Plan, states: Sequence[PhoneState] = STATES) -> tuple[StatePlan, ...]:
    """``first``, the search's plan for each state, and the GPU alone for a busy CPU.

    A plan that places every operator as one before it is left out.  The others have the settings of ``first``; their
    ``predicted_ms`` is for their own state.  Raises :class:`UserError` for a factor below 1.
    """
    plans = [StatePlan("calm", "calm", first)]

    def add(name: str, state: StateName, plan: Plan) -> None:
        if plan.placements not in [other.plan.placements for other in plans]:
            plans.append(StatePlan(name, state, msgspec.structs.replace(plan, settings=first.settings)))

    for state in states:
        if not (state.cpu >= 1 and state.gpu >= 1 and min(state.wait_ms, state.end_ms) >= 0):
            raise UserError(f"the state {state.name} makes a processor faster", f"cpu {state.cpu}, gpu {state.gpu}")
        add(state.name, state.state, plan_for(problem, state))
    gpu_only = problem.single_processor_plans().get("gpu")
    if gpu_only is not None and any(state.state == "cpu busy" for state in states):
        add("gpu only", "cpu busy", gpu_only)
    return tuple(plans)


def plan_for(problem: Problem, state: PhoneState) -> Plan:
    """The plan that is predicted to be the fastest on a phone in that state."""
    sharing = msgspec.structs.replace(
        problem.sharing,
        wait_cpu_ms=max(problem.sharing.wait_cpu_ms, state.wait_ms),
        wait_gpu_ms=max(problem.sharing.wait_gpu_ms, state.wait_ms),
        signal_ms=problem.sharing.signal_ms * state.cpu,
        feed_ms=problem.sharing.feed_ms * state.cpu,
    )
    return replace(problem, sharing=sharing).search(candidates_in(problem, state))


def candidates_in(problem: Problem, state: PhoneState) -> dict[int, tuple[Candidate, ...]]:
    """By operator id the candidates on a phone in that state, cut around its balance."""
    most = MOST_ALIGNED if state.windows <= MOST_WINDOWS else MOST_FOLLOWING
    options = candidates(
        problem.graph, problem.axes, StateModel(problem.costs, state), windows=state.windows, most_aligned=most
    )
    for operator in problem.graph.operators:
        if {*operator.outputs} & {*problem.graph.outputs}:
            options[operator.id] = tuple(
                c if c.placement.on == "gpu" else msgspec.structs.replace(c, cpu_ms=c.cpu_ms + state.end_ms)
                for c in options[operator.id]
            )
    return options
