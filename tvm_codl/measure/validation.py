"""Second look: the few plans that are predicted best, run in turn on the phone, and the fastest of them.

All run a few rounds, then the better half some more, and the leaders the most (successive halving, Jamieson and Talwalkar,
AISTATS 2016), each stage keeping the best single processor.  What leads is looked at again while the order is unsure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.measure.interleave import RUNS, calm_down, ready, rounds
from tvm_codl.runtime.comodule import CoModule

Log = Callable[[str], None]
Samples = dict[str, list[float]]

#: Seconds for all rounds of one network, beyond the fewest that say anything.
SECONDS = 45.0
#: Rounds of the stages, of which the last is repeated while the order is unsure: the fewest, and the most, which is enough
#: for a network of a millisecond to be looked at for longer than whatever else slows a machine down for a moment.
FEWEST, MOST = (2, 2, 4), (15, 25, 40)
#: The share of the seconds that each stage may take.
SHARES = (0.3, 0.2, 0.5)
#: Plans that are as close as this share are as fast as each other, and the one that is predicted to be best is taken.
TIE = 0.01
#: A split that loses to a single processor is looked at again, since whatever else runs on the machine takes away the one
#: thing that co-execution needs: both processors at once.
LOOKS = 3


class Looked(msgspec.Struct, frozen=True):
    """``samples`` in ms of all; ``leaders`` are those of the last stage, whose samples come from the same rounds, and
    ``first`` is the one to take."""

    samples: Samples
    leaders: tuple[str, ...]
    first: str

    def median(self, name: str) -> float:
        return float(np.median(self.samples[name]))


def compare(
    modules: Mapping[str, CoModule],
    inputs: Mapping[str, np.ndarray],
    predicted_ms: Mapping[str, float],
    singles: Collection[str],
    log: Log = lambda _: None,
    seconds: float = SECONDS,
) -> Looked:
    """Runs ``modules`` against each other.

    ``singles`` names the modules that are one processor alone.
    """
    ready(modules, inputs)
    return halved(lambda names, n: rounds({m: modules[m] for m in names}, n), predicted_ms, singles, log, seconds)


def halved(
    run: Callable[[Sequence[str], int], Mapping[str, list[float]]],
    predicted_ms: Mapping[str, float],
    singles: Collection[str],
    log: Log = lambda _: None,
    seconds: float = SECONDS,
    calm: Callable[[], None] = calm_down,
) -> Looked:
    """:func:`compare` with ``run(names, rounds)`` for the phone; the times of a look that is taken back are left out."""
    samples: Samples = {name: [] for name in predicted_ms}
    racing = list(predicted_ms)
    done = FEWEST[0]  # of the first stage: they tell how long a round takes
    _add(samples, run(racing, done))
    for stage in range(len(SHARES)):
        count = _count(stage, samples, racing, seconds) - done
        if count:
            _add(samples, run(racing, count))
        done = 0
        if stage + 1 < len(SHARES):
            racing = leaders(samples, racing, predicted_ms, singles)
    for _ in range(LOOKS - 1):
        middle = {name: float(np.median(samples[name])) for name in racing}
        first = choose(middle, predicted_ms)
        split = min((n for n in racing if n not in singles), key=middle.__getitem__, default=None)
        if split is None or len(racing) < 2:
            break
        if first in singles:
            if predicted_ms[split] > predicted_ms[first] * (1 + TIE):
                break
            log(f"{first} {middle[first]:.2f} ms before {split} {middle[split]:.2f} ms: looking again")
            calm()
            again = dict(run(racing, _count(2, samples, racing, seconds)))
            # Either look may have met something else on the machine; the one in which the split did better has not.
            if _lead(again, split, first) > _lead(samples, split, first):
                samples |= {name: list(times) for name, times in again.items()}
        elif unsure([samples[name] for name in racing]):
            _add(samples, run(racing, _count(2, samples, racing, seconds)))
        else:
            break
    middle = {name: float(np.median(samples[name])) for name in racing}
    return Looked(samples, tuple(racing), choose(middle, predicted_ms))


def leaders(
    samples: Mapping[str, Sequence[float]],
    racing: Sequence[str],
    predicted_ms: Mapping[str, float],
    singles: Collection[str],
) -> list[str]:
    """The faster half of the splits, two at least, and the faster single processor, in the order of ``racing``."""
    order = sorted(racing, key=lambda name: (float(np.median(samples[name])), predicted_ms[name]))
    splits = [name for name in order if name not in singles]
    kept = {*splits[: max(2, math.ceil(len(splits) / 2))], *[name for name in order if name in singles][:1]}
    return [name for name in racing if name in kept]


def choose(middle_ms: Mapping[str, float], predicted_ms: Mapping[str, float], tie: float = TIE) -> str:
    """The fastest of what was measured; of those within ``tie`` of it, the one that is predicted to be the fastest."""
    limit = min(middle_ms.values()) * (1 + tie)
    close = [name for name, ms in middle_ms.items() if ms <= limit]
    return min(close, key=lambda name: (predicted_ms[name], middle_ms[name]))


def unsure(samples: Sequence[Sequence[float]], tie: float = TIE) -> bool:
    """Whether the two fastest may as well come in the other order, and are further apart than a tie.

    Times of the same round are compared, so that what slowed a whole round down says nothing; the deviation of the
    ratios' median is 1.25 times their mean's.
    """
    first, second = sorted(samples, key=lambda times: float(np.median(times)))[:2]
    n = min(len(first), len(second))
    ratio = np.log(np.asarray(second[-n:])) - np.log(np.asarray(first[-n:]))
    error = 1.25 * float(np.std(ratio)) / math.sqrt(n)
    return math.log1p(tie) < abs(float(np.median(ratio))) < 2 * error


def _lead(samples: Mapping[str, Sequence[float]], name: str, other: str) -> float:
    return float(np.median(samples[other]) / np.median(samples[name]))


def _add(samples: Samples, new: Mapping[str, Sequence[float]]) -> None:
    for name, times in new.items():
        samples[name] += times


def _count(stage: int, samples: Samples, racing: Sequence[str], seconds: float) -> int:
    """Rounds of a stage."""
    # One run of a round is not counted.
    round_s = sum(float(np.median(samples[name])) for name in racing) * (RUNS + 1) / 1e3
    return int(np.clip(SHARES[stage] * seconds / round_s, FEWEST[stage], MOST[stage]))
