"""Times several programs in turn on one phone, so that drift affects all alike, and leaves out what was disturbed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, inf
from statistics import median

import numpy as np

from tvm_codl.runtime.comodule import CoModule, Watched

CALM_S = 2.0
#: Samples of one program in one round.
RUNS = 2
#: A program runs once, and for at least so long, before its samples: caches, the driver and the clocks are then as in an
#: application that runs one network again and again.  What runs for less than a millisecond needs more than one run for that.
WARM_MS = 5.0
#: A sample's threads may wait so long for their cores: those that sleep need a moment to wake up, and the kernel some time.
WAKE_MS, KERNEL_SHARE = 0.1, 0.01
#: Known work may take this much longer than it usually does on that core, in this race or at its begin, in so many turns.
#: The fastest would be a poor measure: two cores that share their units are as fast as that where one of them starts late.
SLOWER, FIRST = 1.2, 8
#: How often one program's turn is taken until it is undisturbed, and the pause before the second time, doubled each time.
TRIES, PAUSE_S = 4, 0.05
#: The seconds that a race may spend on disturbed turns, pauses among them, beyond those that it would take without.
PATIENCE_S = 10.0
#: A race in which a smaller share of the rounds was undisturbed says that it was disturbed.
ENOUGH = 0.5
#: ... and one of which an even smaller share was, counts them all: a few rounds have no median.
FEW = 0.25

#: Where the middle half of a program's samples spreads over more than this share of their median, so many times as many rounds
#: say what it takes: beside the guests of a busy host, the median of 30 rounds was off by more than 5 % in a fourth of the
#: cases, of 100 in a twentieth.
STEADY, MORE = 0.1, 3

#: Takes one turn of a program: samples, of which the last :data:`RUNS` count.
Turn = Callable[[], Watched]
#: Ms of known work by the number of cores and the core, as the races of one phone found it.
UsualWork = dict[tuple[int, int], float]


class Race:
    """Programs, by name, that are timed in turn.

    A turn in which other work had the cores is taken again, a round in which that did not help is repeated, both within
    ``patience_s`` seconds (by default :data:`PATIENCE_S`).  ``discarded`` counts the turns that were left out.  A sample is
    the mean of ``number`` runs.  ``usual`` is shared by the races on a phone: what lasts longer than one of them, such as
    a clock that fell, or cores that somebody else shares, does not show within it.
    """

    def __init__(
        self,
        turns: Mapping[str, Turn],
        number: int = 1,
        patience_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        usual: UsualWork | None = None,
    ) -> None:
        self._usual: UsualWork = {} if usual is None else usual
        self._before = dict(self._usual)
        self.turns, self._clock, self._sleep = turns, clock, sleep
        self.patience_s = PATIENCE_S if patience_s is None else patience_s
        self._wake_ms = WAKE_MS / number
        self.discarded = 0
        self._wanted = self._kept = 0  # rounds
        # ms of known work, by the number of cores and the core
        self._work: dict[tuple[int, int], list[float]] = {}
        self._usual_ms: UsualWork = {}

    def run(self, repeat: int, names: Iterable[str] | None = None, most: int = 0) -> dict[str, list[float]]:
        """``RUNS`` samples in ms of each program (by default of all) a round; those at one place are of the same round.

        ``repeat`` rounds, or up to ``most`` where samples vary by more than :data:`STEADY`.
        """
        racing = list(self.turns if names is None else names)
        rounds: list[dict[str, Watched]] = []
        calm: list[dict[str, Watched]] = []
        wanted = repeat
        while len(calm) < wanted and (len(rounds) < repeat or self.patience_s > 0):
            started, left_s = self._clock(), self.patience_s
            rounds.append(self._round(racing))
            # Anew for all: what a core usually takes shows with time.
            calm = [turns for turns in rounds if all(map(self._is_calm, turns.values()))]
            if len(rounds) > repeat:
                self.patience_s = left_s - (self._clock() - started)
            if wanted == repeat <= len(calm) < most and any(_varies(name, calm) for name in racing):
                wanted = most
        self._usual |= {key: ms for key, ms in self._usual_ms.items() if len(self._work[key]) >= FIRST}
        self._wanted += repeat
        self._kept += min(len(calm), repeat)
        if len(calm) >= FEW * repeat:
            self.discarded += len(racing) * (len(rounds) - len(calm))
            rounds = calm
        return {name: _samples(name, rounds) for name in racing}

    def _round(self, names: Iterable[str]) -> dict[str, Watched]:
        """One turn of each.  After the first that stays disturbed the round is lost, and nobody waits for the others."""
        taken: dict[str, Watched] = {}
        calm = True
        for name in names:
            pause = PAUSE_S
            for again in range(TRIES):
                started = self._clock()
                taken[name] = turn = self.turns[name]()
                self._learn(turn)
                quiet = self._is_calm(turn)
                if quiet or not calm or self.patience_s <= 0 or again + 1 == TRIES:
                    break
                self.discarded += 1
                self._sleep(pause)
                self.patience_s -= self._clock() - started
                pause *= 2
            calm = calm and quiet
        return taken

    def _learn(self, turn: Watched) -> None:
        for core, ms in enumerate(turn.work_ms):
            key = (len(turn.work_ms), core)
            times = self._work.setdefault(key, [])
            times.append(ms)
            self._usual_ms[key] = min(median(times), median(times[:FIRST]), self._before.get(key, inf))

    def _is_calm(self, turn: Watched) -> bool:
        """Whether a turn had the cores for itself, as fast as they usually are."""
        samples = zip(turn.waited_ms[-RUNS:], turn.ms[-RUNS:], strict=True)
        cores = enumerate(turn.work_ms)
        return all(waited <= self._wake_ms + KERNEL_SHARE * ms for waited, ms in samples) and all(
            ms <= SLOWER * self._usual_ms[len(turn.work_ms), core] for core, ms in cores
        )

    @property
    def disturbed(self) -> bool:
        """Whether too few rounds were undisturbed for their median to stand for a calm phone."""
        return self._kept < ENOUGH * self._wanted

    @property
    def words(self) -> str:
        """What a user should know of the race; empty where it was undisturbed."""
        if self.disturbed:
            return (
                f"disturbed: only {self._kept} of {self._wanted} rounds had the cores for themselves, at full clock; run it "
                "again when nothing else runs"
            )
        return f"{self.discarded} turns were taken again: other work had the cores" if self.discarded else ""


def _samples(name: str, rounds: Iterable[Mapping[str, Watched]]) -> list[float]:
    return [ms for turns in rounds for ms in turns[name].ms[-RUNS:]]


def _varies(name: str, rounds: Iterable[Mapping[str, Watched]]) -> bool:
    low, middle, high = np.quantile(_samples(name, rounds), (0.25, 0.5, 0.75))
    return bool(high - low > STEADY * middle)


def race(
    modules: Mapping[str, CoModule],
    others: Mapping[str, Turn] | None = None,
    patience_s: float | None = None,
    usual: UsualWork | None = None,
) -> Race:
    """A race of libraries that have their inputs, and of ``others``."""
    turns = {name: library_turn(module) for name, module in modules.items()}
    return Race({**turns, **(others or {})}, patience_s=patience_s, usual=usual)


def library_turn(module: CoModule) -> Turn:
    """The turn of a library that has its inputs."""
    unmeasured = 1

    def turn() -> Watched:
        nonlocal unmeasured
        watched = module.watch(1, unmeasured + RUNS)
        unmeasured = warm_runs(watched.ms)
        return watched

    return turn


def warm_runs(ms: Sequence[float]) -> int:
    """The runs before the samples of a program that took ``ms``."""
    return ceil(WARM_MS / max(min(ms), 0.01))


def start(modules: Mapping[str, CoModule], inputs: Mapping[str, np.ndarray]) -> None:
    """Gives every module the same inputs, runs it once, and waits until the phone is calm."""
    for module in modules.values():
        module.run(inputs)
    calm_down()


def calm_down(meanwhile: Callable[[], object] = lambda: None) -> None:
    """Waits until the kernel has written pages and freed memory after building and sending libraries; ``meanwhile`` is what
    needs no calm.

    Where the phone is this machine, that work runs on the measured cores for seconds, and it slows co-execution alone: a
    single processor leaves it the other core.
    """
    os.sync()
    until = time.monotonic() + CALM_S
    meanwhile()
    time.sleep(max(0.0, until - time.monotonic()))


def sample(module: CoModule, runs: int) -> list[float]:
    """``runs`` samples in ms, after one that is not counted.

    The first run after another module's finds its caches and driver state (PoCL keeps 128 kernels open), which an
    application that runs one network again and again does not see.
    """
    return module.benchmark(1, 1 + runs)[1:]
