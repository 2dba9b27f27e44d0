"""The limits of a phone's OpenCL, checked before a candidate is sent."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tvm_codl.build.launches import Launch

#: Kernels that may wait in one queue; with more, a driver blocks or runs out of memory.  OpenCL has no query for it.
QUEUE_DEPTH = 1024


class Limits(msgspec.Struct, frozen=True):
    """Work-items in a group, and bytes of local memory for a group; 0: unknown."""

    work_group: int = 0
    local_memory: int = 0
    queue: int = QUEUE_DEPTH

    def broken_by(self, launches: Sequence[Launch]) -> str:
        """The limit that one run of these launches breaks, in words; empty for none."""
        for launch in launches:
            if 0 < self.work_group < launch.work_group:
                return f"a work-group of {launch.work_group} work-items; the device allows {self.work_group}"
            if 0 < self.local_memory < launch.local_memory:
                return f"{launch.local_memory} bytes of local memory; the device has {self.local_memory}"
        if len(launches) > self.queue:
            return f"{len(launches)} kernels in the queue at once; at most {self.queue} are sent"
        return ""


class OverLimits(Exception):
    """Some candidates of a batch must not be sent: the reasons by their index."""

    def __init__(self, offenders: dict[int, str]) -> None:
        super().__init__("; ".join(offenders.values()))
        self.offenders = offenders


def check(launches: Sequence[Sequence[Launch]], limits: Limits) -> None:
    """Raises :class:`OverLimits` where a region's launches break a limit."""
    broken = {region: words for region, run in enumerate(launches) if (words := limits.broken_by(run))}
    if broken:
        raise OverLimits(broken)
