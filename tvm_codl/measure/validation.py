"""On-device validation: runs the shortlisted plans in turn on the phone and takes the fastest.

All run a few rounds, then the better half some more, and the leaders the most (successive halving, Jamieson and Talwalkar,
AISTATS 2016).  Each stage keeps the best single processor.  While the order of the leaders is unsure they run again.  The
winner is taken once its answers were checked.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.errors import CheckFailed
from tvm_codl.measure.checked_kernels import Fault
from tvm_codl.measure.context import Context, Log
from tvm_codl.measure.interleave import RUNS, calm_down, race
from tvm_codl.measure.plan_libraries import open_runnable
from tvm_codl.measure.sound_plans import Soundness
from tvm_codl.plan.calibration import Calibration, calibrate_alone
from tvm_codl.plan.candidates import PROCESSORS
from tvm_codl.plan.measured import calibrate_network, record_of
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.shortlist import ShortlistEntry, add_plan_of_runs, origins
from tvm_codl.relay.prepared import Prepared
from tvm_codl.runtime.comodule import CoModule

Samples = dict[str, list[float]]

#: Seconds for all rounds of one network, beyond the fewest that say anything.
SECONDS = 5.0
#: The same where these plans ran before, while other work had the cores.
AGAIN_SECONDS = 2.0
#: Rounds of the stages, the fewest and the most; the last stage is repeated while the order is unsure.  The most are
#: enough for a network of a millisecond to run longer than a short disturbance of the machine.
FEWEST, MOST = (2, 2, 4), (15, 25, 40)
#: The share of the seconds that each stage may take.
SHARES = (0.3, 0.2, 0.5)
#: Plans within this share of each other are equally fast; of these the one with the best prediction is taken.
TIE = 0.01
#: Plans are compared by such quantiles of their samples: in a calm race, and in a disturbed one, as other work only adds.
MEDIAN, LOWER_QUARTILE = 0.5, 0.25
#: Seconds for disturbed turns of the processors alone before the race.
ALONE_PATIENCE_S = 1.0
#: How often the last stage runs at most.  A split that loses to a single processor runs again: other load on the machine
#: hurts co-execution most, which needs both processors at once.
REPEATS = 2


class Validation(msgspec.Struct, frozen=True):
    """``samples`` in ms of all plans; ``first`` is the plan to take."""

    samples: Samples
    first: str

    def median(self, name: str) -> float:
        return float(np.median(self.samples[name]))


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
    once its answers were checked.  A plan by how the processors run now joins, but not ``again``, where one has before.

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

    log(f"validating on the phone: {origins(shortlist) or 'each processor alone'}")
    add({**singles, **{each.origin: each.plan for each in shortlist}})
    known = len(shortlist)
    if not again:
        shortlist = add_plan_of_runs(problem, shortlist, run_alone(singles, modules, context))
    if more := shortlist[known:]:
        log(f"and {origins(more)}")
        add({each.origin: each.plan for each in more})
    if not again:  # something was compiled
        calm_down()
    predicted = {name: plan.predicted_ms for name, plan in plans.items()}
    racing, soundness = race(modules, patience_s=seconds / 2, usual=context.usual_work), Soundness(prepared, context)

    def quantile() -> float:
        return LOWER_QUARTILE if racing.disturbed else MEDIAN

    def run(names: Sequence[str], repeat: int) -> Mapping[str, list[float]]:
        times = racing.run(repeat, names)
        if found is None:
            return times
        first = choose(_quantiles(times, names, quantile()), predicted)
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
        own = own.at_most(calibrate_alone(singles, _quantiles(result.samples, tuple(result.samples), LOWER_QUARTILE)))
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
    work had the cores, which may have hit one of them alone."""
    if len(singles) < len(PROCESSORS):
        return Calibration()
    alone = {on: modules[on] for on in singles}
    racing = race(alone, patience_s=ALONE_PATIENCE_S, usual=context.usual_work)
    times = racing.run(FEWEST[-1])
    if racing.disturbed:
        return Calibration()
    return calibrate_alone(singles, _quantiles(times, PROCESSORS))


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
        result = Validation(samples, choose(_quantiles(samples, tuple(samples), quantile), predicted_ms))
    return result


def halve_successively(
    run: Callable[[Sequence[str], int], Mapping[str, list[float]]],
    predicted_ms: Mapping[str, float],
    singles: Collection[str],
    log: Log = lambda _: None,
    seconds: float = SECONDS,
    calm: Callable[[], None] = calm_down,
    quantile: Callable[[], float] = lambda: MEDIAN,
) -> Validation:
    """Finds the fastest plan by ``run(names, rounds)``, which returns samples in ms.

    ``singles`` names the plans that are one processor alone.  Plans are compared by the ``quantile()`` of their samples, which
    a run may change.  Where a repeated stage replaces an earlier one, the samples of the earlier one are left out.
    """
    samples: Samples = {name: [] for name in predicted_ms}
    racing = list(predicted_ms)
    done = FEWEST[0]  # of the first stage: they tell how long a round takes
    _add(samples, run(racing, done))
    for stage in range(len(SHARES)):
        count = _count(stage, samples, racing, seconds) - done
        if count:
            _add(samples, run(racing, count))
        done = 0
        if stage + 1 < len(SHARES):
            racing = leaders(samples, racing, predicted_ms, singles, quantile())
    for _ in range(REPEATS - 1):
        ms = _quantiles(samples, racing, quantile())
        first = choose(ms, predicted_ms)
        split = min((n for n in racing if n not in singles), key=ms.__getitem__, default=None)
        if split is None or len(racing) < 2:
            break
        if first in singles:
            if predicted_ms[split] > predicted_ms[first] * (1 + TIE):
                break
            log(f"{first} {ms[first]:.2f} ms before {split} {ms[split]:.2f} ms: running them again")
            calm()
            again = dict(run(racing, _count(2, samples, racing, seconds)))
            # Either run may have been disturbed; keep the one in which the split did better.
            if _lead(again, split, first) > _lead(samples, split, first):
                samples |= {name: list(times) for name, times in again.items()}
        elif is_unsure([samples[name] for name in racing]):
            _add(samples, run(racing, _count(2, samples, racing, seconds)))
        else:
            break
    first = choose(_quantiles(samples, racing, quantile()), predicted_ms)
    return Validation(samples, safest(first, samples, [name for name in racing if name in singles], quantile()))


def safest(first: str, samples: Mapping[str, Sequence[float]], singles: Sequence[str], quantile: float = MEDIAN) -> str:
    """``first``, or the best of ``singles`` where one of them is not slower beyond doubt: noise alone must not choose a split,
    which needs both processors undisturbed and may be the slower one tomorrow."""
    if first in singles:
        return first
    leads = (_compare(samples[first], samples[name]) for name in singles)
    if all(lead > 2 * error for lead, error in leads):
        return first
    return min(singles, key=_quantiles(samples, singles, quantile).__getitem__)


def leaders(
    samples: Mapping[str, Sequence[float]],
    racing: Sequence[str],
    predicted_ms: Mapping[str, float],
    singles: Collection[str],
    quantile: float = MEDIAN,
) -> list[str]:
    """The faster half of the splits, two at least, and the faster single processor, in the order of ``racing``.

    Without a split both processors stay: their order may still change.  They do as well where other work had the cores, as
    the one with the best samples may have the worst as well.
    """
    ms = _quantiles(samples, racing, quantile)
    order = sorted(racing, key=lambda name: (ms[name], predicted_ms[name]))
    splits = [name for name in order if name not in singles]
    alone = [name for name in order if name in singles]
    kept = {*splits[: max(2, math.ceil(len(splits) / 2))], *alone[: 1 if splits and quantile == MEDIAN else None]}
    return [name for name in racing if name in kept]


def choose(measured_ms: Mapping[str, float], predicted_ms: Mapping[str, float], tie: float = TIE) -> str:
    """The fastest of what was measured; of those within ``tie`` of it, the one that is predicted to be the fastest."""
    limit = min(measured_ms.values()) * (1 + tie)
    close = [name for name, ms in measured_ms.items() if ms <= limit]
    return min(close, key=lambda name: (predicted_ms[name], measured_ms[name]))


def is_unsure(samples: Sequence[Sequence[float]], tie: float = TIE) -> bool:
    """Whether the order of the two fastest is uncertain although they differ by more than a tie."""
    first, second = sorted(samples, key=lambda times: float(np.median(times)))[:2]
    lead, error = _compare(first, second)
    return math.log1p(tie) < abs(lead) < 2 * error


def _compare(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """How much longer the second takes, as the median logarithm of the ratio, and that median's standard error.

    Compares times of the same round, so that a slow round changes nothing.  The standard error of a median is 1.25 times
    that of a mean (normal errors).
    """
    n = min(len(first), len(second))
    ratio = np.log(np.asarray(second[-n:])) - np.log(np.asarray(first[-n:]))
    return float(np.median(ratio)), 1.25 * float(np.std(ratio)) / math.sqrt(n)


def _quantiles(
    samples: Mapping[str, Sequence[float]], names: Sequence[str], quantile: float = MEDIAN
) -> dict[str, float]:
    return {name: float(np.quantile(samples[name], quantile)) for name in names}


def _lead(samples: Mapping[str, Sequence[float]], name: str, other: str) -> float:
    return float(np.median(samples[other]) / np.median(samples[name]))


def _add(samples: Samples, new: Mapping[str, Sequence[float]]) -> None:
    for name, times in new.items():
        samples[name] += times


def _count(stage: int, samples: Samples, racing: Sequence[str], seconds: float) -> int:
    """Rounds of a stage.  One run of a round is not counted."""
    round_s = sum(_quantiles(samples, racing).values()) * (RUNS + 1) / 1e3
    return int(np.clip(SHARES[stage] * seconds / round_s, FEWEST[stage], MOST[stage]))
