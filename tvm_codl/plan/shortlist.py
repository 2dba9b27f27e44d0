"""Contenders: the few plans that are worth a measurement, since a prediction is never quite right.

The search minimises a prediction; the plans that it finds when the costs are somewhat other than thought, the plans of
other planners and those that were fast before may be faster in truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from tvm_codl.cost.transfers import TransferCost
from tvm_codl.plan.baselines.uniform_ratio import COMPARATORS
from tvm_codl.plan.calibration import alone
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import find

#: Plans beside the two single processors.
MOST = 4
#: A plan that is predicted to take longer than the best by more than this share of its time is not measured.
MARGIN = 0.15
#: Other planners' plans that split are measured up to this share: where the costs are wrong, they err in another way.
FAR_MARGIN = 0.5
#: Two plans differ where the operators that they place otherwise take at least this share of the time.
APART = 0.05


class Contender(msgspec.Struct, frozen=True):
    """``origin`` says in words where a plan comes from; no two of a network are alike."""

    origin: str
    plan: Plan


class Doubt(msgspec.Struct, frozen=True):
    """A way in which the costs may be other than thought: factors of them.

    ``sharing`` is of waits, copies, reading from afar and changes of layout.
    """

    origin: str
    sharing: float = 1.0
    contention: float = 1.0
    cpu: float = 1.0
    gpu: float = 1.0


DOUBTS = (
    Doubt("dearer sharing", sharing=3.0),
    Doubt("much dearer sharing", sharing=10.0),
    Doubt("cheaper sharing", sharing=0.3),
    Doubt("more contention", contention=2.0),
    Doubt("no contention", contention=0.0),
    Doubt("a slower CPU", cpu=1.1),
    Doubt("a slower GPU", gpu=1.1),
)
_SHARED = (
    *("wait_cpu_ms", "wait_gpu_ms", "copy_ms_per_mb", "relayout_ms_per_mb", "far_cpu_ms_per_mb", "far_gpu_ms_per_mb"),
    "signal_ms",
)


def uniform(problem: Problem) -> dict[str, Plan]:
    """The network on each processor alone, by ``cpu`` and ``gpu``, with the times that are predicted for it.

    A processor that does not run every operator is left out.
    """
    wholes = [problem.whole(operator.id) for operator in problem.graph.operators]
    return {
        on: problem.plan([pair[i] for pair in wholes], f"{on} only")
        for i, on in enumerate(("cpu", "gpu"))
        if all(math.isfinite(pair[i].ms) for pair in wholes)
    }


def contenders(
    problem: Problem, best: Plan, known: Sequence[Plan] = (), most: int = MOST, margin: float = MARGIN
) -> list[Contender]:
    """No more than ``most`` different plans, none of them a single processor: ``best``, the other planners', and those of
    the search with other costs, each by their prediction.

    ``known`` are plans of the network that were measured before, the fastest first: that one is always among them,
    whatever is predicted for it.  All plans are priced by ``problem``, and those of which a part cannot run are left out;
    the list is empty where ``best`` is one processor and nothing that shares comes within ``margin`` of it.
    """
    priced = {o.id: {c.placement: c for c in problem.options[o.id]} for o in problem.graph.operators}
    found = [Contender("the search", best)]
    for doubt in DOUBTS:
        plan = find(problem.graph, _doubted(problem, doubt), _shared(problem.sharing, doubt), problem.axes).plan
        chosen = [priced[line.operator][line.placement] for line in plan.operators]
        found.append(Contender(doubt.origin, problem.plan(chosen, f"the best plan with {doubt.origin}")))
    found[1:] = sorted(found[1:], key=lambda one: one.plan.predicted_ms)
    planners = [Contender(name.replace("_", " "), plan(problem)) for name, plan in COMPARATORS.items()]
    planners.sort(key=lambda one: one.plan.predicted_ms)
    first = [Contender("the fastest before", plan) for plan in known[:1]]
    others = [Contender(f"number {i} before", plan) for i, plan in enumerate(known[1:], 2)]
    far = [
        one for one in planners if splits(one.plan) and one.plan.predicted_ms <= best.predicted_ms * (1 + FAR_MARGIN)
    ]
    near = [one for one in found[1:] + planners + others if one.plan.predicted_ms <= best.predicted_ms * (1 + margin)]
    chosen_: list[Contender] = []
    for one in [found[0], *first, *far, *near]:
        if not one.plan.predicted_ms or alone(
            line.placement.on for line in one.plan.operators
        ):  # a plan says 0 of what is infinite
            continue
        if len(chosen_) < most and all(apart(one.plan, other.plan) for other in chosen_):
            chosen_.append(one)
    return chosen_


def splits(plan: Plan) -> bool:
    return any(line.placement.on == "split" for line in plan.operators)


def placements(plan: Plan) -> tuple[Placement, ...]:
    return tuple(line.placement for line in plan.operators)


def apart(plan: Plan, other: Plan, share: float = APART) -> bool:
    """Whether two plans of a network place operators otherwise that take ``share`` of the time of either."""
    pairs = [(a, b) for a, b in zip(plan.operators, other.operators, strict=True) if a.placement != b.placement]
    return bool(pairs) and any(
        sum(pair[i].planned_ms for pair in pairs) >= share * sum(line.planned_ms for line in one.operators)
        for i, one in enumerate((plan, other))
    )


def _doubted(problem: Problem, doubt: Doubt) -> dict[int, Sequence[Candidate]]:
    if doubt.cpu == doubt.gpu == 1:
        return dict(problem.options)
    return {
        id: tuple(replace(c, cpu_ms=c.cpu_ms * doubt.cpu, gpu_ms=c.gpu_ms * doubt.gpu) for c in options)
        for id, options in problem.options.items()
    }


def _shared(sharing: TransferCost, doubt: Doubt) -> TransferCost:
    dearer = {name: getattr(sharing, name) * doubt.sharing for name in _SHARED}
    return replace(sharing, contention=sharing.contention.scaled(doubt.contention), **dearer)


def origins(found: Iterable[Contender]) -> str:
    """What a line of progress says of them."""
    return ", ".join(f"{one.origin} ({one.plan.predicted_ms:.2f} ms)" for one in found)
