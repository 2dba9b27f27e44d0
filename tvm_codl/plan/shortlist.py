"""Shortlist: the few plans that are worth a measurement, since no prediction is exact.

Besides the search's plan these are its plans under perturbed costs, other planners' plans, and the fastest of earlier runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from tvm_codl.cost.transfers import TransferCost
from tvm_codl.plan.baselines.planners import PLANNERS
from tvm_codl.plan.calibration import Calibration
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.plan import Placement, Plan, single_processor
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import search
from tvm_codl.records.workload import Workload

#: Plans beside the two single processors: the search's is the fastest nine times of ten, and each takes time to build.
MOST = 2
#: A plan is not measured if its prediction exceeds the best by more than this share.
MARGIN = 0.15
#: The same for other planners' plans that split: where the costs are wrong, they err in another way.
FAR_MARGIN = 0.25
#: Processors whose runs of a whole network differ by so much in how they err from the prediction have other costs.
SKEW = 1.1
#: Another planner's cut moves so far, as a share of its axis, to one that is compiled anyway, if its plan is predicted to
#: take no more than this share longer then.  Compiling is most of what a shortlist takes.
NEAR, MOVED = 0.1, 0.02
#: Two plans differ if the operators that they place otherwise take at least this share of the time.
APART = 0.05


class ShortlistEntry(msgspec.Struct, frozen=True):
    """``origin`` says in words where a plan comes from; no two of a network are alike."""

    origin: str
    plan: Plan


class Perturbation(msgspec.Struct, frozen=True):
    """Factors of the costs; ``transfer`` is of waits, copies, reading from afar and changes of layout."""

    origin: str
    transfer: float = 1.0
    contention: float = 1.0
    cpu: float = 1.0
    gpu: float = 1.0

    def candidates(self, problem: Problem) -> dict[int, tuple[Candidate, ...]]:
        if self.cpu == self.gpu == 1:
            return problem.options
        return {
            id: tuple(replace(c, cpu_ms=c.cpu_ms * self.cpu, gpu_ms=c.gpu_ms * self.gpu) for c in options)
            for id, options in problem.options.items()
        }

    def transfers(self, sharing: TransferCost) -> TransferCost:
        scaled = {name: getattr(sharing, name) * self.transfer for name in _TRANSFERS}
        return replace(sharing, contention=sharing.contention.scaled(self.contention), **scaled)

    def best(self, problem: Problem) -> ShortlistEntry:
        """The search's plan with these costs, priced by those of ``problem``."""
        plan = search(problem.graph, self.candidates(problem), self.transfers(problem.sharing), problem.axes).plan
        return ShortlistEntry(self.origin, problem.place(plan.placements, f"the best plan with {self.origin}"))


PERTURBATIONS = (
    Perturbation("dearer transfers", transfer=3.0),
    Perturbation("much dearer transfers", transfer=10.0),
    Perturbation("cheaper transfers", transfer=0.3),
    Perturbation("more contention", contention=2.0),
    Perturbation("no contention", contention=0.0),
    Perturbation("a slower CPU", cpu=1.1),
    Perturbation("a slower GPU", gpu=1.1),
)
_TRANSFERS = (
    *("wait_cpu_ms", "wait_gpu_ms", "copy_ms_per_mb", "join_ms_per_mb", "far_cpu_ms_per_mb", "far_gpu_ms_per_mb"),
    *("to_cpu_ms_per_mb", "to_gpu_ms_per_mb", "signal_ms"),
)


def make_shortlist(
    problem: Problem, best: Plan, measured: Sequence[Plan] = (), most: int = MOST, margin: float = MARGIN
) -> list[ShortlistEntry]:
    """Up to ``most`` different plans that use both processors: ``best``, then other planners' and the search's with
    perturbed costs, by prediction.

    ``measured`` are earlier measured plans of the network, the fastest first: that one is always among them, whatever is
    predicted for it.  All plans are priced by ``problem``, and those of which a part cannot run are left out; the list is
    empty where ``best`` is one processor and no other plan comes within ``margin`` of it.
    """
    searched = [changed.best(problem) for changed in PERTURBATIONS]
    planned = [ShortlistEntry(name.replace("_", " "), planner(problem)) for name, planner in PLANNERS.items()]
    for entries in (searched, planned):
        entries.sort(key=lambda entry: entry.plan.predicted_ms)
    before = [ShortlistEntry(f"number {i} before", plan) for i, plan in enumerate(measured[1:], 2)]

    def within(entries: list[ShortlistEntry], share: float) -> list[ShortlistEntry]:
        return [entry for entry in entries if entry.plan.predicted_ms <= best.predicted_ms * (1 + share)]

    entries = [
        ShortlistEntry("the search", best),
        *(ShortlistEntry("the fastest before", plan) for plan in measured[:1]),
        *(e for e in within(planned, FAR_MARGIN) if any(place.on == "split" for place in e.plan.placements)),
        *within(searched + planned + before, margin),
    ]
    result: list[ShortlistEntry] = []
    for entry in entries:
        if len(result) < most and _is_new(entry.plan, result):
            if entry.plan not in measured:
                entry = replace(entry, plan=move_cuts(problem, entry.plan, [other.plan for other in result]))
            if _is_new(entry.plan, result):
                result.append(entry)
    return result


def move_cuts(problem: Problem, plan: Plan, others: Sequence[Plan]) -> Plan:
    """``plan`` with cuts that equal operators have in ``others``, where they are near and the plan is not much slower."""
    keys = [Workload.of(operator, problem.graph).key for operator in problem.graph.operators]
    known: dict[tuple[str, str], set[Placement]] = {}
    for other in others:
        for key, place in zip(keys, other.placements, strict=True):
            known.setdefault((key, place.axis), set()).add(place)

    def moved(node: int, place: Placement) -> Placement:
        cuts = known.get((keys[node], place.axis), {place})
        if place.on != "split" or place in cuts:
            return place
        near = min(cuts, key=lambda cut: (abs(cut.at - place.at), cut.at, cut.over))
        extent = problem.axes[problem.graph.operators[node].id][place.axis].extent
        return near if abs(near.at - place.at) <= NEAR * extent else place

    places = [moved(node, place) for node, place in enumerate(plan.placements)]
    if places == list(plan.placements):
        return plan
    result = problem.place(places, plan.operators[0].reason)
    return result if result.predicted_ms <= plan.predicted_ms * (1 + MOVED) else plan


def add_plan_of_runs(problem: Problem, entries: Sequence[ShortlistEntry], alone: Calibration) -> list[ShortlistEntry]:
    """``entries``, and the search's plan with costs as the processors just ran, where that is another plan.

    ``alone`` are the factors between their predicted and measured times of the whole network.  Pieces are measured before,
    when one core may have been slower, and small networks' ones with colder caches than the network finds.
    """
    if max(alone.cpu, alone.gpu) < SKEW * min(alone.cpu, alone.gpu):
        return list(entries)
    entry = Perturbation("the processors as they ran", cpu=alone.cpu, gpu=alone.gpu).best(problem)
    return [*entries, entry] if _is_new(entry.plan, entries) else list(entries)


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
