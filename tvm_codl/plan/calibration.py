"""Calibration: by how much longer than its operators' sum a whole network takes on each processor alone.

Operators are measured one by one, perhaps in another network, or when the phone was faster or slower.  Every validation
(:mod:`tvm_codl.measure.validation`) also runs the whole network on single processors, and these runs correct the sums.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tvm_codl.plan.plan import Plan, single_processor
from tvm_codl.records.plan_record import PlanRecord

#: So many samples are trusted by half, more of them by more.  Between two runs a phone's speed varies about as much as sums
#: of measured operators err.
PRIOR_SAMPLES = 1


class Calibration(msgspec.Struct, frozen=True):
    """Factors of a network's predictions on each processor alone; 1 without a run."""

    cpu: float = 1.0
    gpu: float = 1.0

    @property
    def shared(self) -> float:
        """The factor of a plan in which both work, each about half of the time: their geometric mean."""
        return math.sqrt(self.cpu * self.gpu)

    def at_most(self, other: Calibration) -> Calibration:
        """The smaller factor of each processor."""
        return Calibration(min(self.cpu, other.cpu), min(self.gpu, other.gpu))


def calibrate(records: Iterable[PlanRecord]) -> Calibration:
    """From one network's runs on single processors; plans that use both are ignored."""
    errors: dict[str, list[float]] = {"cpu": [], "gpu": []}
    for record in records:
        on = processor_of(record)
        if on in errors and record.predicted_ms > 0 and record.median_ms > 0:
            errors[on].append(log_error(record))
    return Calibration(**{on: math.exp(shrunk_median(values)) for on, values in errors.items()})


def calibrate_alone(plans: Mapping[str, Plan], ms: Mapping[str, float]) -> Calibration:
    """From the plans of single processors, by processor, and the ms that they just took."""
    ran = {on: plan.predicted_ms / plan.correction for on, plan in plans.items() if on in ms}
    return Calibration(**{on: ms[on] / predicted_ms for on, predicted_ms in ran.items()})


def processor_of(record: PlanRecord) -> str:
    """The only processor of a recorded plan; empty where both have a part."""
    return single_processor(placement["on"] for placement in json.loads(record.placements))


def log_error(record: PlanRecord) -> float:
    """The logarithm of measured over predicted time."""
    return math.log(record.median_ms / record.predicted_ms)


def shrunk_median(values: Sequence[float]) -> float:
    """The median, shrunk towards 0 the more the fewer the values; 0 for none."""
    return statistics.median(values) * len(values) / (len(values) + PRIOR_SAMPLES) if values else 0.0
