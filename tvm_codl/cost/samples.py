"""Sample: one measured workload, as a model learns from it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Sequence

import msgspec

from tvm_codl.cost.device import DeviceFacts
from tvm_codl.records.record import Processor, Record
from tvm_codl.records.workload import Workload

#: A repeat this much longer than the fastest was disturbed by other work on the machine.
DISTURBED = 1.05
#: With as many repeats the second fastest is taken: the fastest may be a glitch of the clock.
_ENOUGH = 5
#: A smaller share of the repeats is no measure: the core was its own, or its clock high, for a moment only.
_RARE = 0.25
#: The smallest deviation of log-time of a measurement.
LEAST_SIGMA = 0.01
#: That of a single undisturbed repeat.
UNSURE_SIGMA = 0.1


class Sample(msgspec.Struct, frozen=True):
    """``ms`` is infinite where the piece cannot run on that processor; ``sigma`` is the deviation of its logarithm.

    ``median_ms`` is the plain median of all repeats, also disturbed ones; 0 if unknown.
    """

    workload: Workload
    processor: Processor
    ms: float
    sigma: float = LEAST_SIGMA
    device: DeviceFacts = DeviceFacts()
    median_ms: float = 0.0


def samples_of(records: Iterable[Record], device: DeviceFacts | None = None) -> list[Sample]:
    """The typical time of all repeats of each workload and processor, in the order of their first record.

    Infinite if all its records are errors.  Records taken beside the other processor's work are left out.  The records
    must be of one device and build (:func:`newest_build`).
    """
    times: dict[tuple[str, Processor], list[float]] = {}
    for record in records:
        if record.mode == "alone":
            repeats = times.setdefault((record.workload, record.processor), [])
            repeats.extend(record.times_ms if record.ok else ())
    facts = device or DeviceFacts()
    return [
        Sample(
            Workload.from_key(key),
            processor,
            typical(repeats),
            own_sigma(repeats),
            facts,
            statistics.median(repeats) if repeats else math.inf,
        )
        for (key, processor), repeats in times.items()
    ]


def newest_build(records: Sequence[Record]) -> list[Record]:
    """The records of each device's most recently measured build."""
    newest: dict[str, tuple[float, str]] = {}
    for record in records:
        newest[record.device] = max(newest.get(record.device, (-math.inf, "")), (record.when, record.build))
    return [record for record in records if newest[record.device][1] == record.build]


def undisturbed(times_ms: Sequence[float]) -> list[float]:
    """The undisturbed repeats, in rising order: those near the fastest, for disturbances only add time.

    Where these are rare, the shortest interval that holds half of the repeats (the shorth: Andrews et al., Robust Estimates of
    Location, 1972).  On a machine that others keep busy the median of all repeats is reproducible to 10 %, of the former to
    4 %; on cores that other guests of a host share, both vary, and the former take 0.7 of that median.
    """
    if not times_ms:
        return []
    ordered = sorted(times_ms)
    fastest = ordered[1 if len(ordered) >= _ENOUGH else 0]
    near = [t for t in ordered if t <= DISTURBED * fastest]
    if len(near) >= _RARE * len(ordered):
        return near
    half = -(-len(ordered) // 2)
    start = min(range(len(ordered) - half + 1), key=lambda at: ordered[at + half - 1] - ordered[at])
    return ordered[start : start + half]


def typical(times_ms: Sequence[float]) -> float:
    """The median of the undisturbed repeats; infinite for none."""
    return statistics.median(undisturbed(times_ms)) if times_ms else math.inf


def own_sigma(times_ms: Sequence[float]) -> float:
    """Deviation of the logarithm of :func:`typical`, from the spread of the undisturbed repeats."""
    logs = [math.log(t) for t in undisturbed(times_ms) if t > 0]
    if len(logs) < 2:
        return UNSURE_SIGMA
    # A few that agree are weaker evidence than many.
    return max(LEAST_SIGMA, statistics.stdev(logs), UNSURE_SIGMA / len(logs))


def shape_of(workload: Workload) -> Hashable:
    """The key of what is held out together: all pieces of one operator shape, whatever is fused behind it."""
    whole = workload.whole or workload
    sizes = (whole.batch, whole.in_h, whole.in_w, whole.in_c, whole.out_h, whole.out_w, whole.out_c)
    window = (whole.kernel_h, whole.kernel_w, whole.stride, whole.stride_w, whole.dilation, whole.groups)
    kind = whole.kind.removeprefix("integer_")
    plain = kind in ("conv2d", "depthwise", "dense", "max_pool2d", "avg_pool2d", "global_avg_pool2d")
    return (whole.kind, *sizes, *window) if plain else (whole.kind, whole.key)
