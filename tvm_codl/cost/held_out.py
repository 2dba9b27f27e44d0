"""Held out: how good the cost model is on operator shapes that it has not seen, next to the baselines.

All pieces of an operator shape are on one side of a split.  Everything that is learned, the baselines' coefficients and
the calibration of the uncertainty too, is learned from the training side alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.cost.baselines import BASELINES, Amounts
from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.evaluation import Metrics, Result, Scatter, folds, metrics
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
#: Operators that take less than this are near what a clock tells apart: a class of their own, and part of ``all``.
RESOLVED_MS, BELOW = 0.02, "below 20 us"
#: Marks classes that are judged against the plain median of all repeats, disturbed ones too, and not :func:`typical`.
BY_MEDIAN = ", median of all repeats"
#: A baseline is fitted to each kind of operator that has as many samples.
_OWN_FIT = 24


class HeldOut(msgspec.Struct, frozen=True):
    """``samples`` and ``shapes`` by processor; ``noise`` is the median deviation of log-time that the measurements
    themselves have; ``left_out`` counts samples without a finite time."""

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
    count: int = FOLDS,
    seed: int = 0,
) -> HeldOut:
    """Evaluate on the samples of ``device``; those of others only teach.

    Raises :class:`UserError` where there are too few shapes to hold any out.
    """
    results: list[Result] = []
    scatter: list[Scatter] = []
    counts: dict[str, int] = {}
    shapes: dict[str, int] = {}
    noise: dict[str, float] = {}
    for processor in PROCESSORS:
        usable = [s for s in samples if s.processor == processor and 0 < s.ms < math.inf]
        own = [s for s in usable if s.device == device]
        if len({shape_of(s.workload) for s in own}) < 2:
            continue
        others = [s for s in usable if s.device != device]
        predicted, sigma = _predictions(own, others, device, tunings, processor, count, seed)
        measured = np.array([s.ms for s in own])
        place = f"{name} {processor}".strip()
        results += _results(place, own, measured, predicted, sigma)
        scatter.append(Scatter(place, measured.tolist(), {k: v.tolist() for k, v in predicted.items()}))
        counts[processor] = len(own)
        shapes[processor] = len({shape_of(s.workload) for s in own})
        noise[processor] = float(np.median([s.sigma for s in own]))
    if not results:
        raise UserError("too few shapes to hold any out", f"{len(samples)} samples", "tvm-codl measure MODEL")
    left_out = sum(not 0 < s.ms < math.inf for s in samples if s.device == device)
    return HeldOut(name, count, counts, shapes, noise, left_out, results, scatter)


def judge(model: CostModel, samples: Sequence[Sample], name: str = "") -> HeldOut:
    """A given model on those samples of its device that it does not hold as measurements.

    Raises :class:`UserError` where there are none of its device, and where it holds them all.
    """
    if all(sample.device != model.device for sample in samples):
        raise UserError(
            "none of these records is of the model's phone",
            f"{len(samples)} samples; the model is of {model.provenance.get('device') or 'a phone that it does not name'}",
            "leave out --model, or name the records of that phone: --records FILE --device NAME",
        )
    results: list[Result] = []
    scatter: list[Scatter] = []
    counts: dict[str, int] = {}
    shapes: dict[str, int] = {}
    noise: dict[str, float] = {}
    left_out = 0
    for processor in PROCESSORS:
        own = [s for s in samples if s.processor == processor and not model.measured(s.workload, processor)]
        new = [s for s in own if 0 < s.ms < math.inf and s.device == model.device]
        left_out += len(own) - len(new)
        if not new:
            continue
        workloads = [s.workload for s in new]
        ms, sigma = model.estimate(workloads, processor)
        finite = np.flatnonzero(np.isfinite(ms))
        measured = np.array([s.ms for s in new])[finite]
        place = f"{name} {processor}".strip()
        kept = [new[i] for i in finite.tolist()]
        results += _results(place, kept, measured, {LEARNED: ms[finite]}, sigma[finite])
        scatter.append(Scatter(place, measured.tolist(), {LEARNED: ms[finite].tolist()}))
        counts[processor], shapes[processor] = len(kept), len({shape_of(s.workload) for s in kept})
        noise[processor] = float(np.median([s.sigma for s in new]))
    if not results:
        raise UserError(
            "the model was trained on every one of these records", f"{len(samples)} samples",
            "leave out --model: shapes are then held out while learning",
        )  # fmt: skip
    return HeldOut(name, 0, counts, shapes, noise, left_out, results, scatter)


def _predictions(
    own: Sequence[Sample],
    others: Sequence[Sample],
    device: DeviceFacts,
    tunings: Tunings | None,
    processor: Processor,
    count: int,
    seed: int,
) -> tuple[dict[str, Floats], Floats]:
    """Milliseconds of each sample by each learner, predicted while its shape was held out; and the stated deviation."""
    names = [repr(shape_of(s.workload)) for s in own]
    found = {learner: np.zeros(len(own)) for learner in (LEARNED, *BASELINES)}
    sigma = np.zeros(len(own))
    for training, test in folds(names, count, seed):
        held = {names[i] for i in test.tolist()}
        known = [own[i] for i in training.tolist()]
        elsewhere = [s for s in others if repr(shape_of(s.workload)) not in held]
        wanted = [own[i].workload for i in test.tolist()]
        model = CostModel.fit([*elsewhere, *known], device=device, tunings=tunings)
        found[LEARNED][test], sigma[test] = model.estimate(wanted, processor)
        for learner, times in _baselines([s.workload for s in known], [s.ms for s in known], wanted, processor).items():
            found[learner][test] = times
    return found, sigma


def _baselines(
    known: Sequence[Workload], ms: Sequence[float], wanted: Sequence[Workload], processor: Processor
) -> dict[str, Floats]:
    amounts, asked = Amounts.of(known, processor), Amounts.of(wanted, processor)
    log_ms = np.log(np.array(ms))
    kinds, kinds_asked = np.array([w.kind for w in known]), np.array([w.kind for w in wanted])
    result = {}
    for name, baseline in BASELINES.items():
        times = np.zeros(len(wanted))
        for kind in set(kinds_asked.tolist()):
            at = np.flatnonzero(kinds_asked == kind)
            same = np.flatnonzero(kinds == kind)
            chosen = same if len(same) >= _OWN_FIT else np.arange(len(known))
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
    classes = {"conv2d pieces": (kinds == "conv2d") & pieces, "conv2d": kinds == "conv2d"}
    classes |= {kind: kinds == kind for kind in sorted(set(kinds.tolist())) if kind != "conv2d"}
    classes |= {BELOW: measured < RESOLVED_MS, "all": every}
    judged = [(name, chosen, measured) for name, chosen in classes.items()]
    if np.all((medians > 0) & np.isfinite(medians)):
        # What disturbs a run is part of this truth: how much is lost to it, or to the way it is taken out, shows.
        judged += [(f"{name}{BY_MEDIAN}", classes[name], medians) for name in ("conv2d pieces", "all")]
    found = []
    for name, chosen, truth in judged:
        if np.count_nonzero(chosen) < _FEWEST and chosen is not every:
            continue
        for learner, times in predicted.items():
            of_class: Metrics = metrics(truth[chosen], times[chosen], sigma[chosen] if learner == LEARNED else None)
            found.append(Result(place, name, learner, of_class))
    return found
