"""An adaptive set: plans of one network for a phone in several states, among which the co-executor chooses as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.errors import UserError
from tvm_codl.plan.aligned import MOST_ALIGNED, MOST_WINDOWS
from tvm_codl.plan.candidates import Candidate, Predictor, Stepped, candidates
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import search
from tvm_codl.plan.shortlist import uniform
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

StateName = Literal["calm", "cpu busy", "gpu throttled"]
#: Placements of one operator that follow from those behind it, where long chains are wanted.
MOST_FOLLOWING = 32


class PhoneState(msgspec.Struct, frozen=True):
    """How much longer than when calm each processor takes, and what each meeting of the two costs at least, in ms.

    ``end_ms``: what it costs more that a run ends with work of the CPU.
    ``windows``: how many windows' rows may be made twice so that the processors need not meet.
    """

    name: str
    state: StateName
    cpu: float = 1.0
    gpu: float = 1.0
    wait_ms: float = 0.0
    end_ms: float = 0.0
    windows: int = MOST_WINDOWS


#: A process that competes for the CPU's cores gets half of them, in turns of half a millisecond (the co-executor's
#: metronome).  The CPU's thread sleeps where it waits, and the GPU then waits for what is left of the other one's turn: it
#: loses the less the fewer the meetings are and the earlier the CPU's part would have been done; at the end nothing makes
#: up for it.  Where the kernel's turns stay those of its clock, 4 ms, few meetings are best.  Who waits for the GPU's end
#: may do so on any core.  A GPU that gets too hot typically halves its clock.
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


class Slowed:
    """A cost model of the same phone in some state."""

    def __init__(self, model: Predictor, state: PhoneState) -> None:
        self.model, self.factors = model, {"cpu": state.cpu, "gpu": state.gpu}

    def predict(self, workloads: Sequence[Workload], processor: Processor) -> NDArray[np.float64]:
        return self.model.predict(workloads, processor) * self.factors[processor]

    def steps(self, workloads: Sequence[Workload]) -> list[dict[str, int]]:
        """Where tiles end does not change."""
        return self.model.steps(workloads) if isinstance(self.model, Stepped) else [{} for _ in workloads]


def adaptive_plans(problem: Problem, first: Plan, states: Sequence[PhoneState] = STATES) -> tuple[StatePlan, ...]:
    """``first``, for each state the plan that the search finds with the processors' times multiplied, and the GPU alone
    for a busy CPU.

    A plan that places every operator as one before it is left out.  The others have the settings of ``first``; their
    ``predicted_ms`` is for their own state.  Raises :class:`UserError` for a factor below 1.
    """
    found = [StatePlan("calm", "calm", first)]

    def add(name: str, state: StateName, plan: Plan) -> None:
        if placements(plan) not in [placements(one.plan) for one in found]:
            found.append(StatePlan(name, state, msgspec.structs.replace(plan, settings=first.settings)))

    for state in states:
        if not (state.cpu >= 1 and state.gpu >= 1 and min(state.wait_ms, state.end_ms) >= 0):
            raise UserError(f"the state {state.name} makes a processor faster", f"cpu {state.cpu}, gpu {state.gpu}")
        add(state.name, state.state, plan_for(problem, state))
    if any(state.state == "cpu busy" for state in states) and (alone := uniform(problem).get("gpu")) is not None:
        add("gpu only", "cpu busy", alone)
    return tuple(found)


def plan_for(problem: Problem, state: PhoneState) -> Plan:
    """The plan that is predicted to be the fastest on a phone in that state."""
    sharing = msgspec.structs.replace(
        problem.sharing,
        wait_cpu_ms=max(problem.sharing.wait_cpu_ms, state.wait_ms),
        wait_gpu_ms=max(problem.sharing.wait_gpu_ms, state.wait_ms),
        signal_ms=problem.sharing.signal_ms * state.cpu,
        feed_ms=problem.sharing.feed_ms * state.cpu,
    )
    options = slowed(problem, state)
    return search(problem.graph, options, sharing, problem.axes, problem.name, problem.device)


def slowed(problem: Problem, state: PhoneState) -> dict[int, tuple[Candidate, ...]]:
    """By operator id the candidates on a phone in that state, cut around its balance."""
    most = MOST_ALIGNED if state.windows <= MOST_WINDOWS else MOST_FOLLOWING
    model = Slowed(problem.costs, state)
    found = candidates(problem.graph, problem.axes, model, windows=state.windows, most_aligned=most)
    last = [operator.id for operator in problem.graph.operators if {*operator.outputs} & {*problem.graph.outputs}]
    return found | {
        id: tuple(
            one if one.placement.on == "gpu" else msgspec.structs.replace(one, cpu_ms=one.cpu_ms + state.end_ms)
            for one in found[id]
        )
        for id in last
    }


def placements(plan: Plan) -> tuple[object, ...]:
    return tuple(operator.placement for operator in plan.operators)
