"""On-device validation: runs the shortlisted plans in turn on the phone and takes the fastest (:mod:`.halving`), once its answers
were checked."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.errors import CheckFailed
from tvm_codl.measure.checked_kernels import Fault
from tvm_codl.measure.context import Context, Log
from tvm_codl.measure.halving import (
    FEWEST,
    LOWER_QUARTILE,
    MEDIAN,
    SECONDS,
    Validation,
    choose,
    compare,
    halve_successively,
    quantiles,
)
from tvm_codl.measure.interleave import calm_down, race
from tvm_codl.measure.plan_libraries import open_runnable
from tvm_codl.measure.sound_plans import Soundness
from tvm_codl.plan.calibration import Calibration, calibrate_alone
from tvm_codl.plan.candidates import PROCESSORS
from tvm_codl.plan.measured import calibrate_network, record_of
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.shortlist import ShortlistEntry, follow_runs, origins
from tvm_codl.relay.prepared import Prepared
from tvm_codl.runtime.comodule import CoModule

#: Seconds for all rounds of plans that ran before, while other work had the cores.
AGAIN_SECONDS = 2.0
#: Seconds for disturbed turns of the processors alone before the race.
ALONE_PATIENCE_S = 1.0


def validate(
    prepared: Prepared,
    problem: Problem,
    shortlist: Sequence[ShortlistEntry],
    context: Context,
    seconds: float = SECONDS,
    found: Callable[[Plan], None] | None = None,
    again: bool = False,
) -> Plan:
    """Builds the shortlisted plans, runs them in turn on the phone beside each processor alone, and returns the fastest
    with its ``measured_ms``.  Stores the times of all but those with wrong answers.  ``found`` gets the fastest so far,
    once its answers were checked.  The search's plan follows how the processors run now, but not ``again``.

    Leaves out a processor that does not run every operator.
    """
    log, tools = context.log, context.tools
    singles = problem.single_processor_plans()
    for on in PROCESSORS:
        if on not in singles:
            log(f"not tried on the {on} alone, which does not run every operator")
    plans, modules, inputs = dict[str, Plan](), dict[str, CoModule](), prepared.samples

    def add(wanted: Mapping[str, Plan]) -> None:
        # The first run compiles the GPU's kernels, which takes longer than to build a library.
        placed_plans, opened = open_runnable(prepared, wanted, context, lambda module: module.run(inputs))
        for name, placed in placed_plans.items():
            plans[name] = wanted[name]
            if placed.placements != plans[name].placements:
                moved = problem.place(placed.placements, "what does not compile for one processor is on the other")
                plans[name] = msgspec.structs.replace(moved, settings=placed.settings)
                singles.pop(name, None)
        modules.update(opened)

    log("validating on the phone: each processor alone")
    if not again:  # before the others are built, as the search's depends on it
        add(singles)
        shortlist = follow_runs(problem, shortlist, run_alone(singles, modules, context))
    if shortlist:
        log(f"and {origins(shortlist)}")
    add({**(singles if again else {}), **{each.origin: each.plan for each in shortlist}})
    predicted, soundness = {name: plan.predicted_ms for name, plan in plans.items()}, Soundness(prepared, context)
    if not again:  # something was compiled
        likely = min(predicted, key=predicted.__getitem__)
        calm_down(lambda: soundness.fault(plans[likely], modules[likely]))
    racing = race(modules, patience_s=seconds / 2, usual=context.usual_work)

    def quantile() -> float:
        return LOWER_QUARTILE if racing.disturbed else MEDIAN

    def run(names: Sequence[str], repeat: int) -> Mapping[str, list[float]]:
        times = racing.run(repeat, names)
        if found is None:
            return times
        first = choose(quantiles(times, names, quantile()), predicted)
        if soundness.fault(plans[first], modules[first]) is None:
            found(msgspec.structs.replace(problem.correct(plans[first]), measured_ms=float(np.median(times[first]))))
        return times

    result = halve_successively(run, predicted, singles, log, seconds, quantile=quantile)
    if racing.words:
        log(racing.words + ("; plans were compared by their lower quartiles" if racing.disturbed else ""))
    result = without_faults(
        result, predicted, lambda name: soundness.fault(plans[name], modules[name]), log, quantile()
    )
    for name in result.samples:
        plan = plans[name]
        log(f"{name}: predicted {plan.predicted_ms:.2f} ms, measured {result.median(name):.2f} ms")
    now = time.time()
    # The plan that is taken comes first: one that left early may have the better median, of few samples (planned_before).
    names = sorted(result.samples, key=lambda name: name != result.first)
    context.store.add(
        record_of(problem, plans[name], result.samples[name], tools.kernel_id, now, racing.disturbed) for name in names
    )
    if racing.disturbed:
        log("these times price no other plan, and the same command runs these plans again")
    # Calibrate on single-processor runs only: they fit better than per-operator sums.
    own = calibrate_network(context.plan_runs(), problem.graph)
    if racing.disturbed:
        # What took less than predicted, and other work only added to it, was predicted too slow.
        own = own.at_most(calibrate_alone(singles, quantiles(result.samples, tuple(result.samples), LOWER_QUARTILE)))
    log(f"calibrated by these runs: {own.cpu:.3f} (CPU) and {own.gpu:.3f} (GPU) times the operators' sum")
    priced = dataclasses.replace(problem, calibration=own).correct(plans[result.first])
    chosen = msgspec.structs.replace(priced, measured_ms=result.median(result.first))
    if result.first not in singles:
        return chosen
    split = min((result.median(each.origin) for each in shortlist if each.origin in result.samples), default=None)
    against = f"{split:.2f} ms split" if split else "no split that is predicted to be about as fast"
    reason = f"the whole network on the {result.first}: measured {chosen.measured_ms:.2f} ms against {against}"
    operators = tuple(msgspec.structs.replace(o, reason=reason) for o in chosen.operators)
    return msgspec.structs.replace(chosen, operators=operators)


def run_alone(singles: Mapping[str, Plan], modules: Mapping[str, CoModule], context: Context) -> Calibration:
    """By how much longer than predicted each processor takes for the whole network at the moment; not at all where other
    work had the cores, which may have hit one of them alone, nor where their times vary more than they err."""
    if len(singles) < len(PROCESSORS):
        return Calibration()
    alone = {on: modules[on] for on in singles}
    racing = race(alone, patience_s=ALONE_PATIENCE_S, usual=context.usual_work)
    times = racing.run(FEWEST[-1])
    ratio, error = compare(times["cpu"], times["gpu"])
    predicted = math.log(singles["gpu"].predicted_ms / singles["cpu"].predicted_ms)
    if racing.disturbed or abs(ratio - predicted) < 2 * error:
        return Calibration()
    return calibrate_alone(singles, quantiles(times, PROCESSORS))


def without_faults(
    result: Validation,
    predicted_ms: Mapping[str, float],
    fault: Callable[[str], Fault | None],
    log: Log = lambda _: None,
    quantile: float = MEDIAN,
) -> Validation:
    """``result`` whose first plan has no fault, those faster ones left out that have one.

    Raises :class:`CheckFailed` where none is left.
    """
    while (found := fault(result.first)) is not None:
        log(f"{result.first} is left out, its answer is {found.name}: {found.words}")
        samples = {name: times for name, times in result.samples.items() if name != result.first}
        if not samples:
            raise CheckFailed(
                "no plan gives right answers on this phone", f"{result.first}: {found.words}", "tvm-codl doctor"
            )
        result = Validation(samples, choose(quantiles(samples, tuple(samples), quantile), predicted_ms))
    return result
