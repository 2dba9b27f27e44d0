"""AutoTVM's familiar progress line, on stderr: ``[Task  1/20]  Current/Best:   12.34/  56.78 GFLOPS | Progress: …``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from tvm_codl.kernels.tuner.trials import seconds

#: Seconds between two lines where there is no terminal to write over the last one.
EVERY_S = 10.0


class Progress:
    """A callback for ``Tuner.tune``.  On a terminal one line that changes; elsewhere a line now and then."""

    def __init__(self, prefix: str, total: int, done: int = 0) -> None:
        self.prefix, self.total, self.done = prefix, total, done
        self._terminal = sys.stderr.isatty()
        self._started = self._said = time.monotonic()
        self._current = self._best = 0.0

    def __call__(self, tuner: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        self.done += len(inputs)
        flops = [candidate.task.flop / seconds(result) for candidate, result in zip(inputs, results, strict=True)]
        self._current = flops[-1] if flops else 0.0
        self._best = max(self._best, float(tuner.best_flops) if tuner is not None else 0.0, *flops)
        if self._terminal:
            print(f"\r{self.line()}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._said > EVERY_S:
            self._said = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        took = time.monotonic() - self._started
        return (
            f"{self.prefix} Current/Best: {self._current / 1e9:7.2f}/{self._best / 1e9:7.2f} GFLOPS"
            f" | Progress: ({self.done}/{self.total}) | {took:.2f} s"
        )

    def finish(self, words: str) -> None:
        """The last line of a task."""
        print(f"{chr(13) if self._terminal else ''}{self.line()} {words}", file=sys.stderr, flush=True)
