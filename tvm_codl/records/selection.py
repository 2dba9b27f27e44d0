"""Which records are meant, and what there is of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Mode, Processor, Record
from tvm_codl.records.store import RecordStore


class Selection(msgspec.Struct, frozen=True):
    """The records that have all given fields; a kernel record's kind is its task, and it was measured alone.

    A whole plan's kind is its model, and it has neither processor nor mode.
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
    """Records of one kind on one processor of one device.  ``builds`` counts the compilers and schedules that made
    them (a kernel record's is its target); ``newest`` is Unix time.  A plan's processor is ``both``."""

    what: Literal["piece", "kernel", "plan"]
    device: str
    processor: Processor | Literal["both"]
    kind: str
    count: int
    failed: int
    builds: int
    newest: float


def groups(store: RecordStore, selection: Selection = ALL) -> list[Group]:
    """What a store holds of a selection, by device, processor and kind; pieces first, then kernels."""
    found = [
        Group("piece", *row)
        for row in store.totals(selection.device, selection.processor, selection.kind, selection.mode)
    ]
    kernels: dict[tuple[str, Processor, str], list[KernelRecord]] = {}
    for record in selection.kernels(store):
        kernels.setdefault((record.device, record.processor, record.task), []).append(record)
    plans: dict[tuple[str, str], list[PlanRecord]] = {}
    for plan in selection.plans(store):
        plans.setdefault((plan.device, plan.model), []).append(plan)
    found += [
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
    return found + [
        Group(
            "plan",
            device,
            "both",
            model,
            count=len(of),
            failed=0,
            builds=len({r.build for r in of}),
            newest=max(r.when for r in of),
        )
        for (device, model), of in sorted(plans.items())
    ]
