"""Which records are meant, and what there is of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.record import Mode, Processor, Record
from tvm_codl.records.store import RecordStore


class Selection(msgspec.Struct, frozen=True):
    """The records that have all given fields; a kernel record's kind is its task, and it was measured alone."""

    device: str | None = None
    processor: Processor | None = None
    kind: str | None = None
    mode: Mode | None = None

    def records(self, store: RecordStore) -> Iterator[Record]:
        return store.query(device=self.device, processor=self.processor, kind=self.kind, mode=self.mode)

    def kernels(self, store: RecordStore) -> Iterator[KernelRecord]:
        if self.mode == "shared":
            return
        for record in store.kernels(device=self.device, task=self.kind):
            if self.processor in (None, record.processor):
                yield record


ALL = Selection()


class Group(msgspec.Struct, frozen=True):
    """Records of one kind on one processor of one device.  ``builds`` counts the compilers and schedules that made
    them (a kernel record's is its target); ``newest`` is Unix time."""

    what: Literal["piece", "kernel"]
    device: str
    processor: Processor
    kind: str
    count: int
    failed: int
    builds: int
    newest: float


def groups(store: RecordStore, selection: Selection = ALL) -> list[Group]:
    """What a store holds of a selection, by device, processor and kind; pieces first."""
    found = [
        Group("piece", *row)
        for row in store.totals(selection.device, selection.processor, selection.kind, selection.mode)
    ]
    kernels: dict[tuple[str, Processor, str], list[KernelRecord]] = {}
    for record in selection.kernels(store):
        kernels.setdefault((record.device, record.processor, record.task), []).append(record)
    return found + [
        Group(
            "kernel",
            *key,
            count=len(records),
            failed=sum(not r.ok for r in records),
            builds=len({r.target for r in records}),
            newest=max(r.timestamp for r in records),
        )
        for key, records in sorted(kernels.items())
    ]
