"""Record: one measurement of one piece of an operator on one processor of one device."""

from __future__ import annotations

import statistics
from typing import Literal

import msgspec

Processor = Literal["cpu", "gpu"]


class Piece(msgspec.Struct, frozen=True):
    """Units ``[lo, hi)`` of ``extent`` along the output's ``axis``; ``axis`` is empty for the whole operator."""

    kind: str
    axis: str = ""
    lo: int = 0
    hi: int = 0
    extent: int = 0


class Record(msgspec.Struct, frozen=True):
    """``workload`` is the piece's canonical key (:class:`~tvm_codl.records.workload.Workload`); ``when`` is Unix time.

    ``times_ms`` holds one mean of many runs for each repeat.  A piece that failed has none, and says why in
    ``error``: a failure is a record too, so that it is not tried again.  ``build`` names the compiler and tuned
    schedules that made the kernel; ``mode`` says what the other processor did.
    """

    workload: str
    piece: Piece
    processor: Processor
    device: str
    build: str
    times_ms: tuple[float, ...]
    when: float
    mode: Literal["alone", "shared"] = "alone"
    error: str = ""

    @property
    def ok(self) -> bool:
        return not self.error and bool(self.times_ms)

    @property
    def median_ms(self) -> float:
        """Infinite for a piece that failed, so that a search never chooses it."""
        return statistics.median(self.times_ms) if self.ok else float("inf")
