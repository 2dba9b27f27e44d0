"""What plans that were run before say: which were good, and how far from their predictions such plans end up."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Iterable, Sequence

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.calibration import Calibration, calibration, only
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.verify import verify_plan
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.settings import DEFAULT, Settings

#: Of so many networks that were run before, half of what they say is believed; of more, more.
DOUBTED = 1
_PLACEMENTS = msgspec.json.Decoder(tuple[Placement, ...])
_SETTINGS = msgspec.json.Decoder(Settings)


def graph_digest(graph: OpGraph) -> str:
    """16 hexadecimal digits that two networks with other operators, shapes or names do not share."""
    return hashlib.sha256(msgspec.json.encode(graph)).hexdigest()[:16]


def record_of(problem: Problem, plan: Plan, times_ms: Sequence[float], build: str, when: float) -> PlanRecord:
    """The record of runs of a plan, with its prediction as it is without a correction."""
    return PlanRecord(
        problem.name,
        problem.device,
        build,
        graph_digest(problem.graph),
        msgspec.json.encode([line.placement for line in plan.operators]).decode(),
        plan.predicted_ms / plan.correction,
        tuple(times_ms),
        when,
        msgspec.json.encode(plan.settings).decode(),
    )


def known_plans(records: Iterable[PlanRecord], problem: Problem) -> list[Plan]:
    """The plans of a network that shared it between the processors, the one that was the fastest when last run first.

    They are priced by ``problem``; what is no legal plan of it (any more) is left out.
    """
    digest = graph_digest(problem.graph)
    newest = {(r.placements, r.settings): r for r in records if r.graph == digest and not only(r)}
    found = []
    for record in sorted(newest.values(), key=lambda r: r.median_ms):
        try:
            settings = _SETTINGS.decode(record.settings)
            wanted = _PLACEMENTS.decode(record.placements)
            lines = zip(problem.graph.operators, wanted, strict=True)
            bare = tuple(PlannedOperator(operator.id, operator.name, placement) for operator, placement in lines)
            verify_plan(Plan(problem.name, problem.device, bare), problem.graph, problem.axes)
        except (UserError, ValueError):  # of an older version's rules, or no plan at all
            continue
        if settings.gpu_float != "float32":  # it computes something else
            continue
        plan = problem.placed(wanted, "measured before")
        if plan.predicted_ms:  # 0 stands for infinite: a part of it does not run any more
            found.append(msgspec.structs.replace(plan, settings=settings))
    return found


def correction(records: Iterable[PlanRecord], graph: OpGraph) -> float:
    """The factor by which plans that share a network take longer than their replays, by what was run before on one device,
    beyond what each network took longer on single processors (:mod:`.calibration`).

    The median over networks of each one's median, in log, drawn towards 1 where the networks are few.  Runs of ``graph``
    itself are left out: its prediction shall not know its measurement.
    """
    own = graph_digest(graph)
    by_graph: dict[str, list[PlanRecord]] = {}
    for record in records:
        if record.graph != own:
            by_graph.setdefault(record.graph, []).append(record)
    missed: dict[str, float] = {}
    for digest, runs in by_graph.items():
        newest = {(r.placements, r.settings): r for r in runs if not only(r) and r.predicted_ms > 0 and r.median_ms > 0}
        if newest:
            middle = statistics.median(math.log(r.median_ms / r.predicted_ms) for r in newest.values())
            missed[digest] = middle - math.log(calibration(runs).shared)
    if not missed:
        return 1.0
    middle = statistics.median(missed.values())
    return round(math.exp(middle * len(missed) / (len(missed) + DOUBTED)), 4)


def calibrated(records: Iterable[PlanRecord], graph: OpGraph) -> Calibration:
    """What looks at ``graph`` on single processors say of its predictions."""
    own = graph_digest(graph)
    return calibration(r for r in records if r.graph == own and _SETTINGS.decode(r.settings) == DEFAULT)
