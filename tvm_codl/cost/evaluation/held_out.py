"""Held out: the cost model's errors on operator shapes that it has not seen, next to the baselines'.

All pieces of an operator shape are on one side of a split.  Everything is fitted on the training side alone, also the
baselines and the uncertainty's calibration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.evaluation.baselines import BASELINES, Amounts
from tvm_codl.cost.evaluation.metrics import Result, Scatter, metrics
from tvm_codl.cost.folds import folds
from tvm_codl.cost.model import PROCESSORS, CostModel
from tvm_codl.cost.samples import Sample, shape_of
from tvm_codl.errors import UserError
from tvm_codl.kernels.reuse import Tunings
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

Floats = NDArray[np.float64]

LEARNED = "learned"
FOLDS = 5
_FEWEST = 5
#: Shorter operators are near the clock's resolution: a class of their own, and part of ``all``.
RESOLVED_MS, BELOW = 0.02, "below 20 us"
#: Marks classes judged against the plain median of all repeats, also disturbed ones, instead of :func:`typical`.
BY_MEDIAN = ", median of all repeats"
#: Kinds of operators with as many samples get baselines of their own.
_OWN_FIT = 24


class HeldOut(msgspec.Struct, frozen=True):
    """``samples`` and ``shapes`` by processor; ``noise`` is the measurements' own median deviation of log-time;
    ``left_out`` counts samples without a finite time."""

    device: str
    folds: int
    samples: dict[str, int]
    shapes: dict[str, int]
    noise: dict[str, float]
    left_out: int
    results: list[Result]
    scatter: list[Scatter]


def hold_out(
    samples: Sequence[Sample],
    device: DeviceFacts,
    tunings: Tunings | None = None,
    name: str = "",
) -> HeldOut:
    """Evaluate on the samples of ``device``; those of others only teach.

    Raises :class:`UserError` where there are too few shapes to hold any out.
    """
    parts = []
    for processor in PROCESSORS:
        usable = [s for s in samples if s.processor == processor and 0 < s.ms < math.inf]
        own = [s for s in usable if s.device == device]
        if len({shape_of(s.workload) for s in own}) < 2:
            continue
        others = [s for s in usable if s.device != device]
        parts.append(_Part(processor, own, *_predictions(own, others, device, tunings, processor)))
    if not parts:
        raise UserError("too few shapes to hold any out", f"{len(samples)} samples", "tvm-codl measure MODEL")
    return _report(parts, name, FOLDS, sum(not 0 < s.ms < math.inf for s in samples if s.device == device))


def judge(model: CostModel, samples: Sequence[Sample], name: str = "") -> HeldOut:
    """A given model on those samples of its device that it does not hold as measurements.

    Raises :class:`UserError` where there are none of its device, and where it holds them all.
    """
    if all(sample.device != model.device for sample in samples):
        raise UserError(
            "none of these records is of the model's phone",
            f"{len(samples)} samples; the model is of {model.provenance.get('device') or 'an unnamed phone'}",
            "leave out --model, or name the records of that phone: --records FILE --device NAME",
        )
    parts, left_out = [], 0
    for processor in PROCESSORS:
        own = [s for s in samples if s.processor == processor and not model.measured(s.workload.key, processor)]
        new = [s for s in own if 0 < s.ms < math.inf and s.device == model.device]
        left_out += len(own) - len(new)
        if new:
            ms, sigma = model.estimate([s.workload for s in new], processor)
            finite = np.flatnonzero(np.isfinite(ms))
            kept = [new[i] for i in finite.tolist()]
            parts.append(_Part(processor, kept, {LEARNED: ms[finite]}, sigma[finite]))
    if not parts:
        raise UserError(
            "the model was trained on every one of these records", f"{len(samples)} samples",
            "leave out --model: shapes are then held out while learning",
        )  # fmt: skip
    return _report(parts, name, 0, left_out)


class _Part(msgspec.Struct, frozen=True):
    """One processor's samples, their milliseconds by learner, and the learned model's deviation."""

    processor: Processor
    samples: Sequence[Sample]
    predicted: dict[str, Floats]
    sigma: Floats


def _report(parts: Sequence[_Part], name: str, count: int, left_out: int) -> HeldOut:
    results: list[Result] = []
    scatter: list[Scatter] = []
    for part in parts:
        measured = np.array([s.ms for s in part.samples])
        place = f"{name} {part.processor}".strip()
        results += _results(place, part.samples, measured, part.predicted, part.sigma)
        scatter.append(Scatter(place, measured.tolist(), {k: v.tolist() for k, v in part.predicted.items()}))
    counts: dict[str, int] = {part.processor: len(part.samples) for part in parts}
    shapes: dict[str, int] = {part.processor: len({shape_of(s.workload) for s in part.samples}) for part in parts}
    noise: dict[str, float] = {part.processor: float(np.median([s.sigma for s in part.samples])) for part in parts}
    return HeldOut(name, count, counts, shapes, noise, left_out, results, scatter)


def _predictions(
    own: Sequence[Sample],
    others: Sequence[Sample],
    device: DeviceFacts,
    tunings: Tunings | None,
    processor: Processor,
) -> tuple[dict[str, Floats], Floats]:
    """Milliseconds of each sample by each learner, predicted while its shape was held out; and the stated deviation."""
    names = [repr(shape_of(s.workload)) for s in own]
    predicted = {learner: np.zeros(len(own)) for learner in (LEARNED, *BASELINES)}
    sigma = np.zeros(len(own))
    for training, test in folds(names, FOLDS):
        held = {names[i] for i in test.tolist()}
        taught = [own[i] for i in training.tolist()]
        elsewhere = [s for s in others if repr(shape_of(s.workload)) not in held]
        wanted = [own[i].workload for i in test.tolist()]
        model = CostModel.fit([*elsewhere, *taught], device=device, tunings=tunings)
        predicted[LEARNED][test], sigma[test] = model.estimate(wanted, processor)
        for learner, times in _baselines(taught, wanted, processor).items():
            predicted[learner][test] = times
    return predicted, sigma


def _baselines(taught: Sequence[Sample], wanted: Sequence[Workload], processor: Processor) -> dict[str, Floats]:
    amounts, asked = Amounts.of([s.workload for s in taught], processor), Amounts.of(wanted, processor)
    log_ms = np.log(np.array([s.ms for s in taught]))
    kinds, kinds_asked = np.array([s.workload.kind for s in taught]), np.array([w.kind for w in wanted])
    result = {}
    for name, baseline in BASELINES.items():
        times = np.zeros(len(wanted))
        for kind in set(kinds_asked.tolist()):
            at = np.flatnonzero(kinds_asked == kind)
            same = np.flatnonzero(kinds == kind)
            chosen = same if len(same) >= _OWN_FIT else np.arange(len(taught))
            times[at] = np.exp(baseline.fit(amounts[chosen], log_ms[chosen]).predict(asked[at]))
        result[name] = np.clip(times, 1e-9, 1e9)
    return result


def _results(
    place: str, samples: Sequence[Sample], measured: Floats, predicted: dict[str, Floats], sigma: Floats
) -> list[Result]:
    kinds = np.array([s.workload.kind for s in samples])
    pieces = np.array([s.workload.cut is not None for s in samples])
    medians = np.array([s.median_ms for s in samples])
    every = np.ones(len(samples), dtype=bool)
    conv2d = kinds == "conv2d"
    classes = {"conv2d pieces": conv2d & pieces, "conv2d": conv2d}
    classes |= {kind: kinds == kind for kind in sorted(set(kinds.tolist()))}
    classes |= {BELOW: measured < RESOLVED_MS, "all": every}
    judged = [(name, chosen, measured) for name, chosen in classes.items()]
    if np.all((medians > 0) & np.isfinite(medians)):
        # Shows what is lost to disturbed runs, and to the way they are removed.
        judged += [(f"{name}{BY_MEDIAN}", classes[name], medians) for name in ("conv2d pieces", "all")]
    results = []
    for name, chosen, truth in judged:
        if np.count_nonzero(chosen) < _FEWEST and chosen is not every:
            continue
        for learner, times in predicted.items():
            stated = sigma[chosen] if learner == LEARNED else None
            results.append(Result(place, name, learner, metrics(truth[chosen], times[chosen], stated)))
    return results
