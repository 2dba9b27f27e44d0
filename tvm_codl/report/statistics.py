"""Statistics: what is said of a set of times, wherever times are printed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from tvm_codl.errors import CheckFailed


class Statistics(msgspec.Struct, frozen=True):
    """Milliseconds; ``p10`` and ``p90`` interpolate linearly between samples; ``n`` is how many there were."""

    median: float
    p10: float
    p90: float
    n: int

    @classmethod
    def of(cls, samples: Iterable[float]) -> Statistics:
        """Raises :class:`CheckFailed` for no samples, or for one that is no finite number."""
        times = sorted(float(sample) for sample in samples)
        if not times or not all(math.isfinite(time) for time in times):
            raise CheckFailed("these samples have no statistics", evidence=f"{len(times)} samples: {times[:5]}")
        return cls(_quantile(times, 0.5), _quantile(times, 0.1), _quantile(times, 0.9), len(times))


def _quantile(times: list[float], share: float) -> float:
    position = share * (len(times) - 1)
    below = math.floor(position)
    above = min(below + 1, len(times) - 1)
    return times[below] + (times[above] - times[below]) * (position - below)
