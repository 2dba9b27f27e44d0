"""PlanRecord: the times of a whole network under one plan on one device."""

from __future__ import annotations

import statistics

import msgspec

from tvm_codl.records.canonical import dump, parse
from tvm_codl.records.record import check_times


class PlanRecord(msgspec.Struct, frozen=True):
    """``graph`` is the digest of the network's graph, which two versions of a model of one name do not share.

    ``placements`` is a JSON list of the plan's placements in the graph's order, ``settings`` a JSON object of what else it
    chooses (empty where it chooses nothing); both are made canonical.  ``predicted_ms`` is the simulated time as it was
    then, uncorrected; ``times_ms`` are single runs; ``build`` names their kernels.  ``when`` is Unix time.
    ``disturbed``: other work had the phone's cores, so that the times say what was the fastest at best.

    Raises :class:`ValueError` for other JSON, for no times, and for a time that is infinite, NaN or negative.
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
    disturbed: bool = False

    def __post_init__(self) -> None:
        placements, settings = parse(self.placements), parse(self.settings)
        if not isinstance(placements, list) or not all(isinstance(p, dict) and "on" in p for p in placements):
            raise ValueError("placements are a JSON list of objects that say where an operator is on")
        if not placements or not isinstance(settings, dict):
            raise ValueError("a plan has placements, and settings that are a JSON object")
        if not self.times_ms or not self.graph:
            raise ValueError("a plan record has times and a graph")
        check_times((*self.times_ms, self.predicted_ms, self.when))
        msgspec.structs.force_setattr(self, "placements", dump(placements))
        msgspec.structs.force_setattr(self, "settings", dump(settings))

    @property
    def median_ms(self) -> float:
        return statistics.median(self.times_ms)
