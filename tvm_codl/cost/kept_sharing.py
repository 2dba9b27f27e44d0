"""What sharing costs, kept beside a record store, so that plans can be priced again without the phone.

An append-only file of JSON lines, ``records.sharing.jsonl`` for ``records.sqlite``: a process that is killed loses at
most the line that it was writing.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from tvm_codl.cost.sharing import SharingCost


class KeptSharing(msgspec.Struct, frozen=True):
    """``build`` names compiler and schedules as in :class:`~tvm_codl.records.record.Record`; ``when`` is Unix time."""

    device: str
    build: str
    when: float
    sharing: SharingCost


def keep_sharing(store: Path, device: str, build: str, sharing: SharingCost) -> None:
    """Appends what was measured now, for the record store at ``store``."""
    line = msgspec.json.encode(KeptSharing(device, build, time.time(), sharing)) + b"\n"
    with _file(store).open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            # What a process was writing when it was killed must not spoil this line.
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)


def kept_sharing(store: Path, device: str, build: str) -> KeptSharing | None:
    """What was kept last of this device and build; None for nothing.  Lines of other versions are passed over."""
    try:
        lines = _file(store).read_bytes().splitlines()
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        try:
            found = msgspec.json.decode(line, type=KeptSharing)
        except msgspec.DecodeError:
            continue
        if (found.device, found.build) == (device, build):
            return found
    return None


def _file(store: Path) -> Path:
    return store.with_name(f"{store.stem}.sharing.jsonl")
