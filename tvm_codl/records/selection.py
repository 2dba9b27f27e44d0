"""Choosing records of a store, and counting them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Mode, Processor, Record
from tvm_codl.records.store import RecordStore


class Selection(msgspec.Struct, frozen=True):
    """The records that have all given fields.

    A kernel record's kind is its task, its mode ``alone``.  A plan's kind is its model; it has no processor or mode.
    """

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

    def plans(self, store: RecordStore) -> Iterator[PlanRecord]:
        if self.processor or self.mode:
            return
        for record in store.plans(device=self.device):
            if self.kind in (None, record.model):
                yield record


ALL = Selection()


class Group(msgspec.Struct, frozen=True):
    """Records of one kind on one processor of one device.  ``builds`` counts their builds (a kernel record's build is its
    target); ``newest`` is Unix time.  A plan's processor is ``both``."""

    what: Literal["piece", "kernel", "plan"]
    device: str
    processor: Processor | Literal["both"]
    kind: str
    count: int
    failed: int
    builds: int
    newest: float


def groups(store: RecordStore, selection: Selection = ALL) -> list[Group]:
    """Counts a selection by device, processor and kind; pieces first, then kernels, then plans."""
    pieces = store.totals(selection.device, selection.processor, selection.kind, selection.mode)
    rows: list[tuple[Any, Any, Any, Any, bool, str, float]] = [
        ("kernel", r.device, r.processor, r.task, not r.ok, r.target, r.timestamp) for r in selection.kernels(store)
    ]
    rows += [("plan", r.device, "both", r.model, False, r.build, r.when) for r in selection.plans(store)]
    by_group: dict[tuple[Any, Any, Any, Any], list[tuple[bool, str, float]]] = {}
    for row in rows:
        by_group.setdefault(row[:4], []).append(row[4:])
    counted = [Group("piece", *row) for row in pieces]
    for key, of in sorted(by_group.items()):
        failed, builds, times = zip(*of, strict=True)
        counted.append(Group(*key, count=len(of), failed=sum(failed), builds=len(set(builds)), newest=max(times)))
    return counted
