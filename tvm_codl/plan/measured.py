"""Measured: earlier runs of plans on a device, as plans to try again and as corrections of predictions."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Iterable, Sequence

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.calibration import Calibration, calibrate, log_error, processor_of, shrunk_median
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.verify import verify_plan
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.settings import DEFAULT, Settings

_PLACEMENTS = msgspec.json.Decoder(tuple[Placement, ...])
_SETTINGS = msgspec.json.Decoder(Settings)


def graph_digest(graph: OpGraph) -> str:
    """16 hexadecimal digits of a hash over operators, shapes and names."""
    return hashlib.sha256(msgspec.json.encode(graph)).hexdigest()[:16]


def record_of(
    problem: Problem, plan: Plan, times_ms: Sequence[float], build: str, when: float, disturbed: bool = False
) -> PlanRecord:
    """The record of runs of a plan, with its simulated time, without the correction."""
    return PlanRecord(
        problem.name,
        problem.device,
        build,
        graph_digest(problem.graph),
        msgspec.json.encode(plan.placements).decode(),
        plan.predicted_ms / plan.correction,
        tuple(times_ms),
        when,
        msgspec.json.encode(plan.settings).decode(),
        disturbed,
    )


def plans_of(records: Iterable[PlanRecord], problem: Problem) -> list[Plan]:
    """The recorded plans of the problem's network that use both processors, by their last runs, the fastest first.

    They are priced by ``problem``; what is no legal plan of it (any more) is left out.
    """
    digest = graph_digest(problem.graph)
    records = sorted(_latest_shared(r for r in records if r.graph == digest), key=lambda r: r.median_ms)
    return [plan for record in records if (plan := plan_of(record, problem)) is not None]


def plan_of(record: PlanRecord, problem: Problem) -> Plan | None:
    """A recorded plan, priced by ``problem``; None where it is no legal plan of it (any more)."""
    try:
        settings = _SETTINGS.decode(record.settings)
        placements = _PLACEMENTS.decode(record.placements)
        lines = zip(problem.graph.operators, placements, strict=True)
        bare = tuple(PlannedOperator(operator.id, operator.name, placement) for operator, placement in lines)
        verify_plan(Plan(problem.name, problem.device, bare), problem.graph, problem.axes)
    except (UserError, ValueError):  # of an older version's rules, or no plan at all
        return None
    if settings.gpu_float != "float32":  # it computes something else
        return None
    plan = problem.place(placements, "measured before")
    if not plan.predicted_ms:  # 0 stands for infinite: a part of it does not run any more
        return None
    return msgspec.structs.replace(plan, settings=settings)


def fit_correction(records: Iterable[PlanRecord], graph: OpGraph) -> float:
    """The factor by which plans that use both processors of one device take longer than simulated, beyond their networks'
    calibrations (:mod:`.calibration`).

    The shrunk median over networks of each one's median, in log.  Runs of ``graph`` itself are left out: its prediction
    shall not know its measurement.
    """
    own = graph_digest(graph)
    by_graph: dict[str, list[PlanRecord]] = {}
    for record in records:
        if record.graph != own:
            by_graph.setdefault(record.graph, []).append(record)
    errors = []
    for runs in by_graph.values():
        shared = _latest_shared(r for r in runs if r.predicted_ms > 0 and r.median_ms > 0)
        if shared:
            errors.append(statistics.median(map(log_error, shared)) - math.log(calibrate(runs).shared))
    return round(math.exp(shrunk_median(errors)), 4)


def calibrate_network(records: Iterable[PlanRecord], graph: OpGraph) -> Calibration:
    """By the runs of ``graph`` on single processors with default settings."""
    own = graph_digest(graph)
    return calibrate(r for r in records if r.graph == own and _SETTINGS.decode(r.settings) == DEFAULT)


def _latest_shared(records: Iterable[PlanRecord]) -> list[PlanRecord]:
    """The last record of each plan (and settings) that uses both processors."""
    return list({(r.placements, r.settings): r for r in records if not processor_of(r)}.values())
