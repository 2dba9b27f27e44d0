"""An adaptive set: plans of one network for a phone in several states, among which the co-executor chooses as it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import search

StateName = Literal["calm", "cpu busy", "gpu throttled"]


class PhoneState(msgspec.Struct, frozen=True):
    """How much longer than when calm each processor takes, and what each wait costs at least, in ms."""

    name: str
    state: StateName
    cpu: float = 1.0
    gpu: float = 1.0
    wait_ms: float = 0.0


#: A process that competes for the CPU's cores gets half of them, two get two thirds; the CPU's thread then sleeps where
#: it waits, and who wakes it must get it a core: that is some ten times the wait of a CPU that spins.  A GPU that gets
#: too hot typically halves its clock.
STATES = (
    PhoneState("cpu busy", "cpu busy", cpu=2.0),
    PhoneState("cpu busy, few waits", "cpu busy", cpu=2.5, wait_ms=0.1),
    PhoneState("cpu very busy", "cpu busy", cpu=3.0),
    PhoneState("gpu throttled", "gpu throttled", gpu=2.0),
)


class StatePlan(msgspec.Struct, frozen=True):
    """One plan of the set: the first one's ``state`` is calm."""

    name: str
    state: StateName
    plan: Plan


def adaptive_plans(problem: Problem, first: Plan, states: Sequence[PhoneState] = STATES) -> tuple[StatePlan, ...]:
    """``first``, and for each state the plan that the search finds with the processors' times multiplied.

    A plan that places every operator as one before it is left out.  The others have the settings of ``first``; their
    ``predicted_ms`` is for their own state.  Raises :class:`UserError` for a factor below 1.
    """
    found = [StatePlan("calm", "calm", first)]
    for state in states:
        if not (state.cpu >= 1 and state.gpu >= 1 and state.wait_ms >= 0):
            raise UserError(f"the state {state.name} makes a processor faster", f"cpu {state.cpu}, gpu {state.gpu}")
        sharing = msgspec.structs.replace(
            problem.sharing,
            wait_cpu_ms=max(problem.sharing.wait_cpu_ms, state.wait_ms),
            wait_gpu_ms=max(problem.sharing.wait_gpu_ms, state.wait_ms),
            signal_ms=problem.sharing.signal_ms * state.cpu,
            feed_ms=problem.sharing.feed_ms * state.cpu,
        )
        options = slowed(problem.options, state)
        plan = search(problem.graph, options, sharing, problem.axes, problem.name, problem.device)
        plan = msgspec.structs.replace(plan, settings=first.settings)
        if placements(plan) not in [placements(one.plan) for one in found]:
            found.append(StatePlan(state.name, state.state, plan))
    return tuple(found)


def slowed(options: Mapping[int, Sequence[Candidate]], state: PhoneState) -> dict[int, tuple[Candidate, ...]]:
    """The same placements on a phone in that state."""
    return {
        id: tuple(Candidate(c.placement, c.cpu_ms * state.cpu, c.gpu_ms * state.gpu) for c in found)
        for id, found in options.items()
    }


def placements(plan: Plan) -> tuple[object, ...]:
    return tuple(operator.placement for operator in plan.operators)
