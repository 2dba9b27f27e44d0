"""How many samples a candidate needs, and how long they may take."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

from tvm_codl.measure.settings import Settings

#: ``run(n, limit_s)`` takes n samples in ms, in at most that many seconds.
Run = Callable[[int, float], Sequence[float]]

# The median's standard error over the interquartile range, for n samples of a normal distribution: sqrt(pi / 2) / 1.349.
# (McGill, Tukey and Larsen, Variations of Box Plots, The American Statistician 32, 1978)
_ERROR_OF_RANGE = 0.93


def relative_error(times: Sequence[float]) -> float:
    """The standard error of the median, as a share of it; infinite for fewer than two samples."""
    if len(times) < 2:
        return math.inf
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    if high == low:
        return 0.0
    return _ERROR_OF_RANGE * (high - low) / math.sqrt(len(times)) / middle if middle > 0 else math.inf


def first_limit_s(predicted_ms: float | None, settings: Settings) -> float:
    """How long a candidate's first run may take."""
    return settings.first_s + limit_s(predicted_ms or 0.0, 1, settings)


def limit_s(expected_ms: float, runs: int, settings: Settings) -> float:
    """How long ``runs`` more may take of what takes ``expected_ms`` each."""
    return max(settings.floor_s, settings.limit_factor * expected_ms / 1e3 * runs)


def samples(
    run: Run, settings: Settings, predicted_ms: float | None = None, clock: Callable[[], float] = time.monotonic
) -> tuple[float, ...]:
    """As many samples in ms as :class:`Settings` asks for.  What ``run`` raises is the caller's."""
    (first,) = run(1, first_limit_s(predicted_ms, settings))
    # Caches, a driver that still compiles: the first time stands for nothing but how long the others may take.
    expected = max(first, predicted_ms or 0.0)
    started = clock()
    times: list[float] = []
    while True:
        number = min(settings.fewest, settings.most - len(times))
        # A run may be followed by a much longer part that is not timed (another network's caches are pushed out).
        times += run(number, limit_s(expected, number + 1, settings))
        if len(times) >= settings.most or relative_error(times) <= settings.spread:
            return tuple(times)
        if clock() - started >= settings.budget_s:
            return tuple(times)
