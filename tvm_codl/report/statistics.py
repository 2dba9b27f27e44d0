"""Statistics: how times are summed up, wherever they are printed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

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
        times = np.array([float(sample) for sample in samples])
        if not times.size or not np.isfinite(times).all():
            raise CheckFailed(
                "these samples have no statistics", evidence=f"{times.size} samples: {times[:5].tolist()}"
            )
        median, p10, p90 = np.quantile(times, [0.5, 0.1, 0.9]).tolist()
        return cls(median, p10, p90, times.size)
