"""Measured transfer costs beside a record store, so that planning again does not need the phone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tvm_codl.cost.contention import usual_contention
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.records.lines import append_line, file_beside, read_lines

#: The median is taken of as many measurements, the newest.
NEWEST = 5


class StoredTransferCost(msgspec.Struct, frozen=True):
    """``build`` names compiler and schedules as in :class:`~tvm_codl.records.record.Record`; ``when`` is Unix time."""

    device: str
    build: str
    when: float
    sharing: TransferCost


def save_transfer_cost(store: Path, device: str, build: str, sharing: TransferCost) -> None:
    """Append what was measured now to the file beside the record store ``store``."""
    append_line(file_beside(store, "sharing"), StoredTransferCost(device, build, time.time(), sharing))


def load_transfer_cost(store: Path, device: str, build: str) -> StoredTransferCost | None:
    """The newest of this device and build, or None.  Lines of other versions are skipped."""
    return next(iter(_load(store, device, build)), None)


def load_usual_transfer_cost(store: Path, device: str, build: str) -> TransferCost | None:
    """The median of each cost over the newest :data:`NEWEST` measurements, or None.

    One session measures one state of the phone: waits and slow-downs may double in the next.
    """
    costs = [stored.sharing for stored in _load(store, device, build)[:NEWEST]]
    if not costs:
        return None
    medians = msgspec.convert(_median([msgspec.to_builtins(cost) for cost in costs]), TransferCost)
    return msgspec.structs.replace(medians, contention=usual_contention([cost.contention for cost in costs]))


def _median(values: Sequence[Any]) -> Any:
    """The lower median, number by number, of values of one structure."""
    if isinstance(values[0], Mapping):
        return {key: _median([value[key] for value in values]) for key in values[0]}
    return statistics.median_low(values)


def _load(store: Path, device: str, build: str) -> list[StoredTransferCost]:
    """The newest first, with moves by direction whichever version measured them."""
    return [
        msgspec.structs.replace(stored, sharing=stored.sharing.by_direction())
        for stored in read_lines(file_beside(store, "sharing"), StoredTransferCost)
        if (stored.device, stored.build) == (device, build)
    ]
