"""Sample: one measured workload, as a model learns from it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Sequence

import msgspec

from tvm_codl.cost.device import DeviceFacts
from tvm_codl.records.record import Processor, Record
from tvm_codl.records.workload import Workload

#: A repeat this much longer than the fastest was disturbed: the machine did something else besides.
DISTURBED = 1.05
#: With as many repeats the very fastest may be a glitch of the clock, and the next one stands for it.
_ENOUGH = 5
#: Deviation of log-time below which a measurement is never thought to be.
LEAST_SIGMA = 0.01
#: That of a single undisturbed repeat.
UNSURE_SIGMA = 0.1


class Sample(msgspec.Struct, frozen=True):
    """``ms`` is infinite where the piece cannot run on that processor; ``sigma`` is the deviation of its logarithm.

    ``median_ms`` is the plain median of all repeats, disturbed ones too; 0 where it is not known.
    """

    workload: Workload
    processor: Processor
    ms: float
    sigma: float = LEAST_SIGMA
    device: DeviceFacts = DeviceFacts()
    median_ms: float = 0.0


def samples_of(records: Iterable[Record], device: DeviceFacts | None = None) -> list[Sample]:
    """The typical time of all repeats of each workload and processor, in the order of their first record.

    A workload whose every record is an error becomes infinite; what was measured while the other processor was busy is
    left out.  Records of several devices or builds must not be mixed: select them before (:func:`newest_build`).
    """
    times: dict[tuple[str, Processor], list[float]] = {}
    for record in records:
        if record.mode == "alone":
            found = times.setdefault((record.workload, record.processor), [])
            found.extend(record.times_ms if record.ok else ())
    facts = device or DeviceFacts()
    return [
        Sample(
            Workload.from_key(key),
            processor,
            typical(found),
            own_sigma(found),
            facts,
            statistics.median(found) if found else math.inf,
        )
        for (key, processor), found in times.items()
    ]


def newest_build(records: Sequence[Record]) -> list[Record]:
    """Of each device, the records of the build that was measured last."""
    newest: dict[str, tuple[float, str]] = {}
    for record in records:
        newest[record.device] = max(newest.get(record.device, (-math.inf, "")), (record.when, record.build))
    return [record for record in records if newest[record.device][1] == record.build]


def kept(times_ms: Sequence[float]) -> list[float]:
    """The repeats that were not disturbed, in rising order.

    What disturbs a run only ever adds time, up to a scheduler's slice or half of the core; on a busy machine so many runs
    are disturbed that their median repeats itself to 10 %, this to 4 %.
    """
    if not times_ms:
        return []
    ordered = sorted(times_ms)
    fastest = ordered[1 if len(ordered) >= _ENOUGH else 0]
    return [t for t in ordered if t <= DISTURBED * fastest]


def typical(times_ms: Sequence[float]) -> float:
    """The median of the repeats that were not disturbed; infinite for none."""
    return statistics.median(kept(times_ms)) if times_ms else math.inf


def own_sigma(times_ms: Sequence[float]) -> float:
    """Deviation of the logarithm of :func:`typical`, from the spread of the repeats that were not disturbed."""
    logs = [math.log(t) for t in kept(times_ms) if t > 0]
    if len(logs) < 2:
        return UNSURE_SIGMA
    # Few that agree among many that were disturbed say less than many do.
    return max(LEAST_SIGMA, statistics.stdev(logs), UNSURE_SIGMA / len(logs))


def shape_of(workload: Workload) -> Hashable:
    """What must lie on one side of a split: all pieces of one operator shape, whatever is fused behind it."""
    whole = workload.whole or workload
    sizes = (whole.batch, whole.in_h, whole.in_w, whole.in_c, whole.out_h, whole.out_w, whole.out_c)
    window = (whole.kernel_h, whole.kernel_w, whole.stride, whole.stride_w, whole.dilation, whole.groups)
    plain = whole.kind in ("conv2d", "depthwise", "dense", "max_pool2d", "avg_pool2d", "global_avg_pool2d")
    return (whole.kind, *sizes, *window) if plain else (whole.kind, whole.key)
