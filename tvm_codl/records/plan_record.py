"""PlanRecord: the times of a whole network under one plan on one device."""

from __future__ import annotations

import math
import statistics

import msgspec

from tvm_codl.records.canonical import dumped, parsed


class PlanRecord(msgspec.Struct, frozen=True):
    """``graph`` is the digest of the network's graph, which two versions of a model of one name do not share.

    ``placements`` is a JSON list of the plan's placements in the graph's order, ``settings`` a JSON object of what else it
    chooses (empty where it chooses nothing); both are made canonical.  ``predicted_ms`` is the plan's replay as it was then,
    without any correction; ``times_ms`` are single runs, of which ``build`` names the kernels.  ``when`` is Unix time.

    Raises :class:`ValueError` for placements or settings that are none, for no times, and for a time that is infinite, NaN or
    negative.
    """

    model: str
    device: str
    build: str
    graph: str
    placements: str
    predicted_ms: float
    times_ms: tuple[float, ...]
    when: float
    settings: str = "{}"

    def __post_init__(self) -> None:
        placements, settings = parsed(self.placements), parsed(self.settings)
        if not isinstance(placements, list) or not all(isinstance(p, dict) and "on" in p for p in placements):
            raise ValueError("placements are a JSON list of objects that say where an operator is on")
        if not placements or not isinstance(settings, dict):
            raise ValueError("a plan has placements, and settings that are a JSON object")
        if not self.times_ms or not all(
            math.isfinite(t) and t >= 0 for t in (*self.times_ms, self.predicted_ms, self.when)
        ):
            raise ValueError(f"times must be there, finite and not negative: {self.times_ms}, at {self.when}")
        if not self.graph:
            raise ValueError("a plan is one of a graph")
        msgspec.structs.force_setattr(self, "placements", dumped(placements))
        msgspec.structs.force_setattr(self, "settings", dumped(settings))

    @property
    def median_ms(self) -> float:
        return statistics.median(self.times_ms)
