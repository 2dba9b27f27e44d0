"""Successive halving: finds the fastest of several plans by few runs (Jamieson and Talwalkar, AISTATS 2016).

All run a few rounds, then the better half some more, and the leaders the most.  Each stage keeps the best single processor.  While
the order of the leaders is unsure they run again.  A split far ahead, as it was predicted to be, ends the race.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.measure.context import Log
from tvm_codl.measure.interleave import RUNS, calm_down

Samples = dict[str, list[float]]

#: Seconds for all rounds of one network, beyond the fewest that say anything.
SECONDS = 5.0
#: Rounds of the stages, the fewest and the most; the last stage is repeated while the order is unsure.  The most are
#: enough for a network of a millisecond to run longer than a short disturbance of the machine.
FEWEST, MOST = (2, 2, 4), (15, 25, 40)
#: The share of the seconds that each stage may take.
SHARES = (0.3, 0.2, 0.5)
#: Plans within this share of each other are equally fast; of these the one with the best prediction is taken.
TIE = 0.01
#: Plans are compared by such quantiles of their samples: in a calm race, and in a disturbed one, as other work only adds.
MEDIAN, LOWER_QUARTILE = 0.5, 0.25
#: With so many samples of each, a split that is ahead of all others by this share, beyond doubt, has won.
ENOUGH, AHEAD = 8, 0.1
#: How often the last stage runs at most.  A split that loses to a single processor runs again: other load on the machine
#: hurts co-execution most, which needs both processors at once.
REPEATS = 2


class Validation(msgspec.Struct, frozen=True):
    """``samples`` in ms of all plans; ``first`` is the plan to take."""

    samples: Samples
    first: str

    def median(self, name: str) -> float:
        return float(np.median(self.samples[name]))


def halve_successively(
    run: Callable[[Sequence[str], int], Mapping[str, list[float]]],
    predicted_ms: Mapping[str, float],
    singles: Collection[str],
    log: Log = lambda _: None,
    seconds: float = SECONDS,
    calm: Callable[[], None] = calm_down,
    quantile: Callable[[], float] = lambda: MEDIAN,
) -> Validation:
    """Finds the fastest plan by ``run(names, rounds)``, which returns samples in ms.

    ``singles`` names the plans that are one processor alone.  Plans are compared by the ``quantile()`` of their samples, which
    a run may change.  Where a repeated stage replaces an earlier one, the samples of the earlier one are left out.
    """
    samples: Samples = {name: [] for name in predicted_ms}
    racing = list(predicted_ms)
    done = FEWEST[0]  # of the first stage: they tell how long a round takes
    _add(samples, run(racing, done))
    for stage in range(len(SHARES)):
        count = _count(stage, samples, racing, seconds) - done
        if count:
            _add(samples, run(racing, count))
        done = 0
        if _has_won(
            choose(quantiles(samples, racing, quantile()), predicted_ms), samples, racing, predicted_ms, singles
        ):
            break
        if stage + 1 < len(SHARES):
            racing = leaders(samples, racing, predicted_ms, singles, quantile())
    for _ in range(REPEATS - 1):
        ms = quantiles(samples, racing, quantile())
        first = choose(ms, predicted_ms)
        split = min((n for n in racing if n not in singles), key=ms.__getitem__, default=None)
        if split is None or len(racing) < 2:
            break
        if first in singles:
            if predicted_ms[split] > predicted_ms[first] * (1 + TIE):
                break
            log(f"{first} {ms[first]:.2f} ms before {split} {ms[split]:.2f} ms: running them again")
            calm()
            again = dict(run(racing, _count(2, samples, racing, seconds)))
            # Either run may have been disturbed; keep the one in which the split did better.
            if _lead(again, split, first) > _lead(samples, split, first):
                samples |= {name: list(times) for name, times in again.items()}
        elif is_unsure([samples[name] for name in racing]):
            _add(samples, run(racing, _count(2, samples, racing, seconds)))
        else:
            break
    first = choose(quantiles(samples, racing, quantile()), predicted_ms)
    return Validation(samples, safest(first, samples, [name for name in racing if name in singles], quantile()))


def safest(first: str, samples: Mapping[str, Sequence[float]], singles: Sequence[str], quantile: float = MEDIAN) -> str:
    """``first``, or the best of ``singles`` where one of them is not slower beyond doubt: noise alone must not choose a split,
    which needs both processors undisturbed and may be the slower one tomorrow."""
    if first in singles or _is_ahead(first, singles, samples):
        return first
    return min(singles, key=quantiles(samples, singles, quantile).__getitem__)


def leaders(
    samples: Mapping[str, Sequence[float]],
    racing: Sequence[str],
    predicted_ms: Mapping[str, float],
    singles: Collection[str],
    quantile: float = MEDIAN,
) -> list[str]:
    """The faster half of the splits, two at least, and the faster single processor, in the order of ``racing``.

    Without a split both processors stay: their order may still change.  They do as well where other work had the cores, as
    the one with the best samples may have the worst as well.
    """
    ms = quantiles(samples, racing, quantile)
    order = sorted(racing, key=lambda name: (ms[name], predicted_ms[name]))
    splits = [name for name in order if name not in singles]
    alone = [name for name in order if name in singles]
    kept = {*splits[: max(2, math.ceil(len(splits) / 2))], *alone[: 1 if splits and quantile == MEDIAN else None]}
    return [name for name in racing if name in kept]


def choose(measured_ms: Mapping[str, float], predicted_ms: Mapping[str, float], tie: float = TIE) -> str:
    """The fastest of what was measured; of those within ``tie`` of it, the one that is predicted to be the fastest."""
    limit = min(measured_ms.values()) * (1 + tie)
    close = [name for name, ms in measured_ms.items() if ms <= limit]
    return min(close, key=lambda name: (predicted_ms[name], measured_ms[name]))


def is_unsure(samples: Sequence[Sequence[float]], tie: float = TIE) -> bool:
    """Whether the order of the two fastest is uncertain although they differ by more than a tie."""
    first, second = sorted(samples, key=lambda times: float(np.median(times)))[:2]
    lead, error = compare(first, second)
    return math.log1p(tie) < abs(lead) < 2 * error


def _has_won(
    first: str,
    samples: Mapping[str, Sequence[float]],
    racing: Sequence[str],
    predicted_ms: Mapping[str, float],
    singles: Collection[str],
) -> bool:
    """Whether more runs would change nothing: where the prediction says otherwise, one of the two was disturbed."""
    if first in singles or len(samples[first]) < ENOUGH or predicted_ms[first] > min(predicted_ms[n] for n in racing):
        return False
    return _is_ahead(first, [name for name in racing if name != first], samples, AHEAD)


def _is_ahead(first: str, others: Sequence[str], samples: Mapping[str, Sequence[float]], share: float = 0.0) -> bool:
    """Whether ``first`` is faster than each of ``others``, by that share at least, beyond doubt."""
    leads = (compare(samples[first], samples[name]) for name in others)
    return all(lead > max(2 * error, math.log1p(share)) for lead, error in leads)


def compare(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """How much longer the second takes, as the median logarithm of the ratio, and that median's standard error.

    Compares times of the same round, so that a slow round changes nothing.  The standard error of a median is 1.25 times
    that of a mean (normal errors).
    """
    n = min(len(first), len(second))
    ratio = np.log(np.asarray(second[-n:])) - np.log(np.asarray(first[-n:]))
    return float(np.median(ratio)), 1.25 * float(np.std(ratio)) / math.sqrt(n)


def quantiles(
    samples: Mapping[str, Sequence[float]], names: Sequence[str], quantile: float = MEDIAN
) -> dict[str, float]:
    return {name: float(np.quantile(samples[name], quantile)) for name in names}


def _lead(samples: Mapping[str, Sequence[float]], name: str, other: str) -> float:
    return float(np.median(samples[other]) / np.median(samples[name]))


def _add(samples: Samples, new: Mapping[str, Sequence[float]]) -> None:
    for name, times in new.items():
        samples[name] += times


def _count(stage: int, samples: Samples, racing: Sequence[str], seconds: float) -> int:
    """Rounds of a stage.  One run of a round is not counted."""
    round_s = sum(quantiles(samples, racing).values()) * (RUNS + 1) / 1e3
    return int(np.clip(SHARES[stage] * seconds / round_s, FEWEST[stage], MOST[stage]))
