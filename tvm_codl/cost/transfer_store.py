"""What sharing costs, kept beside a record store, so that plans can be priced again without the phone.

An append-only file of JSON lines, ``records.sharing.jsonl`` for ``records.sqlite``: a process that is killed loses at
most the line that it was writing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tvm_codl.cost.contention import usual_contention
from tvm_codl.cost.transfers import TransferCost

#: Of so many measurements the median is believed.
LOOKS = 5


class StoredTransferCost(msgspec.Struct, frozen=True):
    """``build`` names compiler and schedules as in :class:`~tvm_codl.records.record.Record`; ``when`` is Unix time."""

    device: str
    build: str
    when: float
    sharing: TransferCost


def save_transfer_cost(store: Path, device: str, build: str, sharing: TransferCost) -> None:
    """Appends what was measured now, for the record store at ``store``."""
    line = msgspec.json.encode(StoredTransferCost(device, build, time.time(), sharing)) + b"\n"
    with _file(store).open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            # What a process was writing when it was killed must not spoil this line.
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)


def load_transfer_cost(store: Path, device: str, build: str) -> StoredTransferCost | None:
    """What was kept last of this device and build; None for nothing.  Lines of other versions are passed over."""
    return next(iter(_kept(store, device, build)), None)


def load_usual_transfer_cost(store: Path, device: str, build: str) -> TransferCost | None:
    """The median of each cost over what was kept last, :data:`LOOKS` times at most; None for nothing.

    A few seconds of measuring meet a phone in one state, and a wait or a slow-down that is twice as long in the next
    session is rather that state than the phone.
    """
    found = [one.sharing for one in _kept(store, device, build)[:LOOKS]]
    if not found:
        return None
    usual = msgspec.convert(_middle([msgspec.to_builtins(one) for one in found]), TransferCost)
    return msgspec.structs.replace(usual, contention=usual_contention([one.contention for one in found]))


def _middle(values: Sequence[Any]) -> Any:
    """Of each number in values of one structure; of an even count the lower middle, which was measured."""
    if isinstance(values[0], Mapping):
        return {key: _middle([value[key] for value in values]) for key in values[0]}
    return statistics.median_low(values)


def _kept(store: Path, device: str, build: str) -> list[StoredTransferCost]:
    """The newest first."""
    try:
        lines = _file(store).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in reversed(lines):
        try:
            one = msgspec.json.decode(line, type=StoredTransferCost)
        except msgspec.DecodeError:
            continue
        if (one.device, one.build) == (device, build):
            found.append(one)
    return found


def _file(store: Path) -> Path:
    return store.with_name(f"{store.stem}.sharing.jsonl")
