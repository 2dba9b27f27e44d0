"""Shortlist: the few plans of both processors that are worth a measurement, since no prediction is exact.

They are the search's plan, with costs as the processors just ran where these are others, and the fastest of earlier runs.  Other
planners' plans, those by perturbed costs, and the search's by both costs were among them once: in 18 races none of the first was
more than 3 % faster than the search's, the last was the fastest in two of 13, and to build one took a tenth of the command.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from tvm_codl.plan.calibration import Calibration
from tvm_codl.plan.plan import Plan, single_processor
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import search

#: Processors whose runs of a whole network differ by so much in how they err from the prediction have other costs.
SKEW = 1.1
#: The power of such a factor by which costs change: a run of half a second finds a phone that has its speed of the moment.
TRUST = 0.5
#: The origin of the search's plan.
SEARCHED = "the search"
#: Two plans differ if the operators that they place otherwise take at least this share of the time.
APART = 0.05


class ShortlistEntry(msgspec.Struct, frozen=True):
    """``origin`` says in words where a plan comes from; no two of a network are alike."""

    origin: str
    plan: Plan


def make_shortlist(best: Plan, measured: Sequence[Plan] = ()) -> list[ShortlistEntry]:
    """``best``, the search's plan, and the fastest of ``measured``, earlier plans of the network, whatever is predicted for it.

    Those that cannot run, that use one processor, and that hardly differ from ``best`` are left out.
    """
    result: list[ShortlistEntry] = []
    for origin, plan in ((SEARCHED, best), *(("the fastest before", plan) for plan in measured[:1])):
        if _is_new(plan, result):
            result.append(ShortlistEntry(origin, plan))
    return result


def follow_runs(problem: Problem, entries: Sequence[ShortlistEntry], alone: Calibration) -> list[ShortlistEntry]:
    """``entries``, the search's plan with costs that are nearer to how the processors just ran.

    ``alone`` are the factors between their predicted and measured times of the whole network.  Pieces are measured before,
    when one core may have been slower, and small networks' ones with colder caches than the network finds.
    """
    if max(alone.cpu, alone.gpu) < SKEW * min(alone.cpu, alone.gpu):
        return list(entries)
    cpu, gpu = alone.cpu**TRUST, alone.gpu**TRUST
    ran = {
        id: tuple(replace(c, cpu_ms=c.cpu_ms * cpu, gpu_ms=c.gpu_ms * gpu) for c in options)
        for id, options in problem.options.items()
    }
    placements = search(problem.graph, ran, problem.sharing, problem.axes).plan.placements
    found = ShortlistEntry(
        "the search, as each ran", problem.place(placements, "the best plan by how each processor ran")
    )
    others = [entry for entry in entries if entry.origin != SEARCHED]
    return [found, *others] if _is_new(found.plan, others) else list(entries)


def _is_new(plan: Plan, entries: Iterable[ShortlistEntry]) -> bool:
    """Whether a plan can run, uses both processors, and differs from all of ``entries``."""
    # A plan says 0 of an infinite time.
    if not plan.predicted_ms or single_processor(place.on for place in plan.placements):
        return False
    return all(differ(plan, other.plan) for other in entries)


def differ(plan: Plan, other: Plan, share: float = APART) -> bool:
    """Whether the operators that two plans of a network place otherwise take ``share`` of the time of either."""
    pairs = [(a, b) for a, b in zip(plan.operators, other.operators, strict=True) if a.placement != b.placement]
    return bool(pairs) and any(
        sum(pair[i].planned_ms for pair in pairs) >= share * sum(line.planned_ms for line in whole.operators)
        for i, whole in enumerate((plan, other))
    )


def origins(entries: Iterable[ShortlistEntry]) -> str:
    """For a line of progress."""
    return ", ".join(f"{entry.origin} ({entry.plan.predicted_ms:.2f} ms)" for entry in entries)
