"""Baseline: a known operator, timed between the candidates, shows whether the phone's speed has drifted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from enum import Enum

from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.measure.context import Log
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.measure.settings import Settings
from tvm_codl.plan.candidates import PROCESSORS
from tvm_codl.records.record import Processor

#: Small enough to cost little, large enough that a clock's speed shows.
WANTED_FLOPS = 2e7
FIRST_PAUSE_S = 0.5
#: A phone is slow that is so in as many looks, so many seconds apart, and its first speed is the best of as many: other work
#: takes a core for less than that.
LOOKS, LOOK_S = 4, 0.05

#: Times the baseline operator of each processor, in ms.
Times = Callable[[], Mapping[Processor, float]]


class Verdict(Enum):
    """What a check found: the phone runs as before; it was slow but has recovered; it is still slow; or it is faster than
    ever, so it was slow from the beginning."""

    STEADY = "steady"
    RECOVERED = "recovered"
    SLOW = "slow"
    FASTER = "faster"


class Baseline:
    """Compares the times of known operators with their first times.

    On a busy machine they change every few seconds: each kind of change is told once, then counted for :meth:`tell_changes`.
    """

    def __init__(self, times: Times, settings: Settings, log: Log, sleep: Callable[[float], None] = time.sleep) -> None:
        self.times, self.settings, self.log, self.sleep = times, settings, log, sleep
        self.reference: dict[Processor, float] = {}
        self._cooling_left_s = settings.cool_s
        self._slow = False
        self._told: set[str] = set()
        self._slowed = self._sped_up = 0
        self._slowest = 1.0

    def check(self) -> Verdict:
        """Times them; where they are slow, waits for them to recover as long as the session may."""
        if not self.reference:
            self.reference = self._best_times()
            return Verdict.STEADY
        ratio, looks = self._ratio(), 1
        while not self._slow and ratio > 1 + self.settings.drift and looks < LOOKS:
            self.sleep(LOOK_S)
            ratio, looks = self._ratio(), looks + 1
        if ratio > 1 + self.settings.drift:
            return self._cool_down(ratio)
        if ratio < 1 / (1 + self.settings.drift):
            self._sped_up += 1
            speed = f"{1 / ratio:.2f} times the speed that it began with"
            self._tell_once("faster", f"the phone now runs at {speed}: measuring again")
            self.reference = self._best_times()
            self._slow = False
            return Verdict.FASTER
        return self._recover() if self._slow else Verdict.STEADY

    def tell_changes(self) -> None:
        """At the end of a session: how often the speed changed, and how slow it was."""
        words = []
        if self._slowed:
            least = 1 / (1 + self.settings.drift)
            times = _times(self._slowed)
            words.append(f"fell below {least:.2f} of its speed {times}, to {self._slowest:.2f} at the slowest")
        if self._sped_up:
            words.append(f"ran faster than at first {_times(self._sped_up)}")
        if rested_s := self.settings.cool_s - self._cooling_left_s:
            words.append(f"cooled down for {rested_s:g} s in all")
        if self._slow:
            words.append("is still slow")
        if words:
            self.log(f"drift: while measuring, the phone {'; it '.join(words)}")

    def _best_times(self) -> dict[Processor, float]:
        best = dict(self.times())
        for _ in range(LOOKS - 1):
            self.sleep(LOOK_S)
            best |= {processor: min(ms, best.get(processor, ms)) for processor, ms in self.times().items()}
        return best

    def _ratio(self) -> float:
        """Now over then, of the processor that changed most."""
        now = self.times()
        ratios = [now[p] / then for p, then in self.reference.items() if p in now and then > 0]
        return max(ratios, key=lambda ratio: abs(math.log(ratio)), default=1.0)

    def _cool_down(self, ratio: float) -> Verdict:
        self._slowest = min(self._slowest, 1 / ratio)
        if not self._slow:
            self._slowed += 1
            does = "cooling down" if self._cooling_left_s >= FIRST_PAUSE_S else "measuring goes on"
            self._tell_once("slow", f"drift: the phone runs at {1 / ratio:.2f} of its speed; {does}")
        self._slow, pause = True, FIRST_PAUSE_S
        while self._cooling_left_s >= pause:
            self._cooling_left_s -= pause
            self.sleep(pause)
            ratio, pause = self._ratio(), 2 * pause
            self._slowest = min(self._slowest, 1 / ratio)
            if ratio <= 1 + self.settings.drift:
                return self._recover()
        if pause > FIRST_PAUSE_S:
            self._tell_once("still", f"drift: the phone still runs at {1 / ratio:.2f} of its speed; measuring goes on")
        return Verdict.SLOW

    def _recover(self) -> Verdict:
        self._slow = False
        self._tell_once("recovered", "the phone runs at its first speed again")
        return Verdict.RECOVERED

    def _tell_once(self, change: str, text: str) -> None:
        if change not in self._told:
            self._told.add(change)
            self.log(text)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def baseline_probes(graph: OpGraph) -> list[Probe]:
    """One whole operator for each processor: the one whose work is nearest to :data:`WANTED_FLOPS`."""
    distance = {o.id: abs(math.log(max(o.flops, 1) / WANTED_FLOPS)) for o in graph.operators}
    nearest = sorted(whole_probes(graph), key=lambda probe: distance[probe.operator])
    return [next(probe for probe in nearest if probe.processor == on) for on in PROCESSORS if nearest]
