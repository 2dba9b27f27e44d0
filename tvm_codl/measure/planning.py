"""Plans a network for a phone: measures and learns, plans, and validates the best plans on the phone."""

from __future__ import annotations

import math
import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from tvm_codl.cost.transfer_store import load_usual_transfer_cost
from tvm_codl.device.power import Power
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.busy_validation import choose_busy_plan, time_when_busy
from tvm_codl.measure.context import Context
from tvm_codl.measure.fitting import fit_once, pose_problem
from tvm_codl.measure.learning import learn
from tvm_codl.measure.plan_libraries import build_adaptive_library, open_library
from tvm_codl.measure.time_limit import TimeOver, time_limit
from tvm_codl.measure.validation import AGAIN_SECONDS, validate
from tvm_codl.plan.adaptive import StatePlan, adaptive_plans
from tvm_codl.plan.calibration import processor_of
from tvm_codl.plan.energy import Energy
from tvm_codl.plan.measured import graph_digest, plan_of, plans_of
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import search
from tvm_codl.plan.shortlist import ShortlistEntry, make_shortlist
from tvm_codl.relay.prepared import Prepared


def make_plan(
    prepared: Prepared,
    context: Context,
    budget_s: float,
    check: bool = True,
    limit_s: float = math.inf,
    again: bool = False,
) -> Plan:
    """Measures, learns and plans; with ``check``, runs the best plans on the phone against each processor alone and
    returns the fastest, which is never slower than the better processor.  Without, the predicted best.

    Where such runs are on record for this phone and today's kernels, returns the fastest of the last ones at once, or runs
    those plans again if all such runs were disturbed; with ``again`` plans anew.

    ``budget_s`` seconds bound the measuring of pieces; whole operators and a few pieces are always measured.  After
    ``limit_s`` seconds returns the best plan that is known: the fastest that ran, with right answers, or else the one that
    is predicted to be.  Raises :class:`UserError` where there is none yet.
    """
    before = None if again or not check else planned_before(prepared, context)
    if before is not None and not before.disturbed:
        return before.plan
    found: list[Plan] = []
    told = None if limit_s == math.inf else found.append
    try:
        with time_limit(limit_s):
            if before is not None:
                return validate(prepared, before.problem, before.split, context, AGAIN_SECONDS, told, again=True)
            guided, problem = learn(prepared, context, Budget(seconds=budget_s), found=found.append)
            if not check:
                return guided.plan
            return validate(prepared, problem, shortlist(problem, guided.plan, context), context, found=told)
    except TimeOver:
        context.phone.reopen(context.settings.patience_s, context.log)  # it may still be running what it was given
    if not found:
        raise UserError(
            "the time limit was over before there was a plan",
            "what was measured is kept, and the same command goes on from there",
            "give more time, or run it again",
        )
    plan = found[-1]
    ran = f"measured {plan.measured_ms:.2f} ms" if plan.measured_ms else "not run on the phone"
    context.log(f"the time limit is over: the best plan so far, predicted {plan.predicted_ms:.2f} ms, {ran}")
    return plan


class PlannedBefore(msgspec.Struct, frozen=True):
    """``plan``: what the network's last validation took; ``split``: its plans that use both processors; ``disturbed``:
    it should be run again."""

    plan: Plan
    problem: Problem
    split: tuple[ShortlistEntry, ...]
    disturbed: bool


def planned_before(prepared: Prepared, context: Context) -> PlannedBefore | None:
    """What the network's last validation on this phone with today's kernels found, an undisturbed one if there is one."""
    digest = graph_digest(prepared.graph)
    runs = list(context.store.plans(device=context.device, build=context.tools.kernel_id, graph=digest))
    runs = [run for run in runs if not run.disturbed] or runs
    last = [run for run in runs if run.when == runs[-1].when]
    sharing = load_usual_transfer_cost(context.store.path, context.device, context.tools.kernel_id)
    if len(last) < 2 or sharing is None:
        return None
    model = fit_once(context.records(), context.profile, context.tools.kernel_id, context.tools.records)
    problem = pose_problem(prepared, model, sharing, context.device, context.plan_runs())
    plans = [plan_of(run, problem) for run in last]
    taken = last[0]  # as validate stores them
    if plans[0] is None:
        return None
    alone = " and ".join(f"{run.median_ms:.2f} ms on the {on}" for run in last if (on := processor_of(run)))
    day = time.strftime("%Y-%m-%d", time.localtime(taken.when))
    then = "when other work had the cores: running its plans again" if taken.disturbed else "--again plans anew"
    context.log(
        f"planned before, on {day}: measured {taken.median_ms:.2f} ms against {alone or 'no processor alone'}; {then}"
    )
    split = [plan for plan, run in zip(plans, last, strict=True) if plan is not None and not processor_of(run)]
    entries = (ShortlistEntry(f"number {i} before", plan) for i, plan in enumerate(split, 1))
    plan = msgspec.structs.replace(problem.correct(plans[0]), measured_ms=taken.median_ms)
    return PlannedBefore(plan, problem, tuple(entries), taken.disturbed)


def shortlist(problem: Problem, plan: Plan, context: Context) -> list[ShortlistEntry]:
    """The plans that are worth a run on the phone, those among them that were fast before."""
    runs = context.store.plans(device=problem.device)
    return make_shortlist(plan, plans_of(runs, problem))


def make_adaptive(
    prepared: Prepared, context: Context, budget_s: float, plan: Plan | None = None
) -> tuple[StatePlan, ...]:
    """``plan`` (by default :func:`make_plan`'s), then plans for a phone whose CPU is busy or whose GPU is throttled."""
    guided, problem = learn(prepared, context, Budget(seconds=budget_s))
    if plan is None:
        plan = validate(prepared, problem, shortlist(problem, guided.plan, context), context)
    return validate_adaptive(prepared, adaptive_plans(problem, plan), context)


def validate_adaptive(prepared: Prepared, plans: Sequence[StatePlan], context: Context) -> tuple[StatePlan, ...]:
    """Runs the plans for a busy CPU beside competing threads on the phone and keeps the fastest of them.

    Returns the first of ``plans``, that one, and those for other states.  Builds one library of them all.
    """
    candidates = [i for i, plan in enumerate(plans) if i == 0 or plan.state == "cpu busy"]
    if len(candidates) == 1:
        return tuple(plans)
    with tempfile.TemporaryDirectory(prefix="tvm-codl-") as folder:
        path = Path(folder) / f"{prepared.name}-{secrets.token_hex(4)}.so"
        racing = [plans[i] for i in candidates]
        build_adaptive_library(prepared, racing, context.profile, context.tools, path, context.log)
        module = open_library(path, context.phone)
        module.run(prepared.samples)
        samples = time_when_busy(module, context.phone, range(len(candidates)))
    medians = {place: float(np.median(samples[number])) for number, place in enumerate(candidates)}
    for place, ms in medians.items():
        context.log(f"{plans[place].name}: {ms:.2f} ms while the CPU is busy")
    return choose_busy_plan(plans, medians)


def plan_energy(prepared: Prepared, context: Context, budget_s: float, power: Power | None = None) -> Plan:
    """Measures as :func:`make_plan` does, then plans for the least energy by a power table, by default the profile's.

    The plan is not run: no phone here measures its energy.  Raises :class:`UserError` without a table, before anything is
    measured.
    """
    energy = Energy(required_power(power, context.profile))
    _, problem = learn(prepared, context, Budget(seconds=budget_s))
    network = (problem.graph, problem.options, problem.sharing, problem.axes, problem.name, problem.device)
    return problem.correct(search(*network, energy=energy).plan)


def required_power(power: Power | None, profile: DeviceProfile) -> Power:
    """``power``, or else the profile's table.  Raises :class:`UserError` where there is neither."""
    table = power or profile.power
    if table is None:
        raise UserError(
            "energy cannot be planned without the phone's power",
            f"the profile of {profile.name} has no power table, and no phone reports one",
            "write idle_w, cpu_w, gpu_w and both_w, the watts of the whole phone in each state, to a file, one "
            "`name: watts` a line, and give it with --power FILE",
        )
    return table
