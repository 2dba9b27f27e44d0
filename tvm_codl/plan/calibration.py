"""Calibration: by how much longer than its operators a whole network takes on each processor alone.

Operators are measured one by one, with caches through which as much has gone as the network goes through in a run; a
record may come from another network, though, or from a phone that was faster or slower at that moment.  What the whole
network took on one processor says so, and that is measured beside every plan (:mod:`tvm_codl.measure.validation`).
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable

import msgspec

from tvm_codl.records.plan_record import PlanRecord

#: Of so many looks at a network half of what they say is believed; of more, more.  From one look to the next a phone's
#: speed changes about as much as the sums of measured operators are wrong.
DOUBTED_LOOKS = 1


class Calibration(msgspec.Struct, frozen=True):
    """Factors of what is predicted for one network on each processor alone."""

    cpu: float = 1.0
    gpu: float = 1.0

    @property
    def shared(self) -> float:
        """The factor of a plan in which both work, each about half of the time: their geometric mean."""
        return math.sqrt(self.cpu * self.gpu)


#: Of a network that was not run on a processor alone.
UNKNOWN = Calibration()


def calibration(records: Iterable[PlanRecord]) -> Calibration:
    """What runs of one network on single processors say, each record a look at it; those of plans that share say nothing.

    The median of the looks, in log, drawn towards 1 where they are few.
    """
    missed: dict[str, list[float]] = {"cpu": [], "gpu": []}
    for record in records:
        on = only(record)
        if on in missed and record.predicted_ms > 0 and record.median_ms > 0:
            missed[on].append(math.log(record.median_ms / record.predicted_ms))
    return Calibration(**{on: _drawn(values) for on, values in missed.items()})


def only(record: PlanRecord) -> str:
    """The processor that has all of a plan; empty where both have a part."""
    return alone(one["on"] for one in json.loads(record.placements))


def alone(places: Iterable[str]) -> str:
    """The processor that has all of a network whose operators are there; empty where both have a part."""
    found = set(places)
    return found.pop() if len(found) == 1 and "split" not in found else ""


def _drawn(values: list[float]) -> float:
    if not values:
        return 1.0
    return math.exp(statistics.median(values) * len(values) / (len(values) + DOUBTED_LOOKS))
