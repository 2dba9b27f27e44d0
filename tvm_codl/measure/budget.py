"""Budget: how much may be measured, as a number of measurements or as time."""

from __future__ import annotations

import math
import re
import time

import msgspec

from tvm_codl.errors import UsageError

#: Seconds that pieces of a network are measured for, unless its user says otherwise.
USUAL_S = 20.0
_TEXT = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>s|min|h|)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


class Budget(msgspec.Struct, frozen=True):
    """No more than ``measurements`` new ones and no more than ``seconds``; what a store knows already costs nothing."""

    measurements: float = math.inf
    seconds: float = math.inf

    @classmethod
    def parse(cls, text: str) -> Budget:
        """``200`` measurements, ``90s``, ``5min`` or ``1h``.  Raises :class:`UsageError` for other text."""
        match = _TEXT.fullmatch(text.strip())
        amount = float(match["amount"]) if match else 0.0
        if match is None or not amount > 0 or (not match["unit"] and amount != int(amount)):
            raise UsageError(
                f"{text!r} is no budget", next="give a number of measurements (200) or a time (90s, 5min, 1h)"
            )
        if match["unit"]:
            return cls(seconds=amount * _SECONDS[match["unit"]])
        return cls(measurements=int(amount))


class Purse:
    """What is left of a budget; the clock runs from when it is made."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.taken = 0
        self._started = time.monotonic()
        self._measuring_s = 0.0

    def spend(self, measurements: int, seconds: float) -> None:
        self.taken += measurements
        self._measuring_s += seconds

    @property
    def left(self) -> int:
        """Measurements that can still be afforded, at the speed of those so far; 0 when the budget has ended."""
        by_number = self.budget.measurements - self.taken
        remaining_s = self.budget.seconds - (time.monotonic() - self._started)
        if remaining_s <= 0 or by_number <= 0:
            return 0
        each_s = self._measuring_s / self.taken if self.taken else 0.0
        by_time = remaining_s / each_s if each_s > 0 else math.inf
        return int(min(by_number, by_time, 1e9))
