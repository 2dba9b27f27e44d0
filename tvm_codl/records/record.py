"""Record: one measurement of one piece of an operator on one processor of one device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Literal

import msgspec

Processor = Literal["cpu", "gpu"]
Mode = Literal["alone", "shared"]


class ErrorNo(IntEnum):
    """Kinds of failure: the numbers of AutoTVM's ``MeasureErrorNo`` (tvm/autotvm/measure/measure.py), and from 100 our
    own, which AutoTVM's readers take for failures too.

    ``GPU_WRONG``: its answer on the phone is not the host's.  ``GPU_UNSTEADY``: runs on one input gave different answers.
    """

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8
    GPU_WRONG = 101
    GPU_UNSTEADY = 102


class Piece(msgspec.Struct, frozen=True):
    """Units ``[lo, hi)`` of ``extent`` along the output's ``axis``; ``axis`` is empty for the whole operator."""

    kind: str
    axis: str = ""
    lo: int = 0
    hi: int = 0
    extent: int = 0


def check_times(times: Iterable[float]) -> None:
    """Raises :class:`ValueError` for a time that is infinite, NaN or negative."""
    if wrong := [time for time in times if not (math.isfinite(time) and time >= 0)]:
        raise ValueError(f"times must be finite and not negative: {wrong}")


class Record(msgspec.Struct, frozen=True):
    """``workload`` is the piece's canonical key (:class:`~tvm_codl.records.workload.Workload`); ``when`` is Unix time.

    ``times_ms`` holds one mean of many runs for each repeat.  A failure is a record too, so that it is not tried again:
    it has no times, but ``error`` and ``error_no`` (:class:`ErrorNo`; ``UNKNOWN_ERROR`` where only the text is given).
    ``build`` names the compiler and tuned schedules of the kernel; ``mode`` is ``shared`` if the other processor was busy.
    ``profile`` is the digest of the device's profile (:meth:`RecordStore.keep_profile`), ``schedule`` the kernel's
    configuration as JSON; both are empty where unknown.

    Raises :class:`ValueError` for a time that is infinite, NaN or negative, and for an unknown error number.
    """

    workload: str
    piece: Piece
    processor: Processor
    device: str
    build: str
    times_ms: tuple[float, ...]
    when: float
    mode: Mode = "alone"
    error: str = ""
    error_no: int = 0
    profile: str = ""
    schedule: str = ""

    def __post_init__(self) -> None:
        check_times((*self.times_ms, self.when))
        number = ErrorNo(self.error_no)
        if not number and (self.error or not self.times_ms):
            number = ErrorNo.UNKNOWN_ERROR
        msgspec.structs.force_setattr(self, "error_no", int(number))

    @property
    def ok(self) -> bool:
        return not self.error_no

    @property
    def median_ms(self) -> float:
        """Infinite for a piece that failed, so that a search never chooses it."""
        return statistics.median(self.times_ms) if self.ok else float("inf")


#: A record's fields and its piece's, side by side.
FIELDS = (*Piece.__struct_fields__, *(name for name in Record.__struct_fields__ if name != "piece"))


def flatten(record: Record) -> dict[str, Any]:
    """The values of :data:`FIELDS`."""
    fields = msgspec.structs.asdict(record)
    return msgspec.structs.asdict(fields.pop("piece")) | fields


def nest(fields: Mapping[str, object]) -> dict[str, object]:
    """:func:`flatten` undone, for :func:`msgspec.convert`."""
    piece = {name: fields[name] for name in Piece.__struct_fields__}
    return {name: value for name, value in fields.items() if name not in piece} | {"piece": piece}
