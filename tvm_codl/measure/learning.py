"""Learns what a network costs on a phone: measures its pieces, guided by the plan, and fits the cost model."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import msgspec

from tvm_codl.cost.transfer_store import load_transfer_cost, load_usual_transfer_cost, save_transfer_cost
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.context import Context
from tvm_codl.measure.fitting import model_fitter, pose_problem
from tvm_codl.measure.guided import Guided, GuidedMeasuring, grid_probes
from tvm_codl.measure.measurer import Measurer
from tvm_codl.measure.transfers import compile_programs, measure_transfers
from tvm_codl.plan.measured import graph_digest
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.records.record import Record
from tvm_codl.records.rounds import save_rounds
from tvm_codl.relay.prepared import Prepared

#: The share of a budget of time in which a phone may cool down.
COOLING = 0.1
#: Transfers that were measured no longer ago, for another network, are not measured again.
RECENT_S = 600.0
#: Probes of a grid between two lines of progress.
GRID_STEP = 96


def learn(
    prepared: Prepared,
    context: Context,
    budget: Budget,
    retry_failed: bool = False,
    found: Callable[[Plan], None] = lambda plan: None,
) -> tuple[Guided, Problem]:
    """Measures a network's operators and pieces within ``budget``, those first that could change the plan.

    Returns the result, whose plan is the predicted best and has not run yet, and the planning problem with the costs
    that were learned.  ``found`` gets the plan of each round.  With ``retry_failed`` measures again, within the budget, what failed on this phone before.
    Raises :class:`DeviceError` where the phone goes away for good.
    """
    tools, store, log = context.tools, context.store, context.log
    sharing = usual_transfer_cost(context)
    log(f"a wait costs {sharing.wait_cpu_ms * 1e3:.0f} us, joining pieces {sharing.join_ms_per_mb:.2f} ms/MB")
    # Cooling down is part of measuring, and the budget bounds it.
    cool_s = min(context.settings.cool_s, COOLING * budget.seconds)
    settings = msgspec.structs.replace(context.settings, cool_s=cool_s)
    measurer = Measurer.of(prepared, dataclasses.replace(context, settings=settings))
    measuring = GuidedMeasuring(
        prepared.graph,
        prepared.axes,
        measurer,
        sharing,
        budget,
        model_fitter(context.profile, tools.kernel_id, tools.records),
        {(record.workload, record.processor): record for record in context.records()},
        prepared.name,
        context.device,
        log,
        found,
    )
    try:
        guided = measuring.run(retry_failed)
    finally:
        measurer.tell_drift()
    save_rounds(store.path, context.device, tools.kernel_id, graph_digest(prepared.graph), guided.rounds)
    problem = pose_problem(prepared, guided.model, sharing, context.device, context.plan_runs())
    if problem.correction != 1:
        log(
            f"plans that use both processors took {problem.correction:.3f} times their predicted time on this phone; "
            "predictions include this factor now"
        )
    # Measuring went by bolder predictions than a plan should.
    plans = problem.correct(problem.search()), problem.place(guided.plan.placements, "the best plan while measuring")
    corrected = msgspec.structs.replace(guided, plan=min(plans, key=lambda plan: plan.predicted_ms))
    found(corrected.plan)
    return corrected, problem


def usual_transfer_cost(context: Context) -> TransferCost:
    """What transfers usually cost on the phone; measures it first, unless that was done in the last :data:`RECENT_S`."""
    of = context.store.path, context.device, context.tools.kernel_id
    sharing = _recent_transfer_cost(context)
    if sharing is None:
        sharing = measure_transfers(context.phone, context.tools)
        save_transfer_cost(*of, sharing)
    return load_usual_transfer_cost(*of) or sharing


def compile_ahead(context: Context) -> None:
    """Compiles what :func:`learn` runs first on the phone, for whoever has time before."""
    if _recent_transfer_cost(context) is None:
        compile_programs(context.tools)


def _recent_transfer_cost(context: Context) -> TransferCost | None:
    kept = load_transfer_cost(context.store.path, context.device, context.tools.kernel_id)
    return kept.sharing if kept is not None and 0 <= time.time() - kept.when <= RECENT_S else None


def measure_grid(prepared: Prepared, context: Context, retry_failed: bool = False) -> list[Record]:
    """Measures every operator whole and split along each axis in tenths: thousands of records where a plan needs a tenth
    of them.  Returns them; what is on record is not measured again, but failures with ``retry_failed``."""
    probes = grid_probes(prepared.graph, prepared.axes)
    measurer = Measurer.of(prepared, context)
    records: list[Record] = []
    try:
        for start in range(0, len(probes), GRID_STEP):
            records += measurer.measure(probes[start : start + GRID_STEP], retry_failed=retry_failed)
            context.log(f"{len(records)} of {len(probes)} measured")
    finally:
        measurer.tell_drift()
    return records
