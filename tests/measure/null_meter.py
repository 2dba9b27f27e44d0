"""A null device for the measuring loop: it takes a synthetic latency for a measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.unit.cost.latency import latency
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.measure.probe import Probe
from tvm_codl.records.record import Piece, Record
from tvm_codl.records.store import RecordStore
from tvm_codl.records.workload import Workload


class NullMeter:
    """Keeps every record in ``store``, as a session does, before the next one is measured; ``before`` is called with the
    number of measurements so far.  The (key, processor) in ``bad`` fail; the GPU is ``gpu_speed`` times as fast."""

    def __init__(self, graph: OpGraph, store: RecordStore, before: Callable[[int], None] = lambda count: None) -> None:
        self.graph, self.store, self.before = graph, store, before
        self.bad: set[tuple[str, str]] = set()
        self.gpu_speed = 1.0
        self.batches: list[list[Probe]] = []
        self.retried: list[Probe] = []
        self.ended = 0

    def tell_drift(self) -> None:
        self.ended += 1

    @property
    def taken(self) -> list[Probe]:
        return [probe for batch in self.batches for probe in batch]

    def measure(
        self, probes: Sequence[Probe], predicted_ms: Sequence[float | None] | None = None, *, retry_failed: bool = False
    ) -> list[Record]:
        self.batches.append([])
        self.retried += probes if retry_failed else []
        records = []
        for probe in probes:
            self.before(len(self.taken))
            workload = Workload.from_key(probe.key)
            ms = latency(workload, probe.processor) / (self.gpu_speed if probe.processor == "gpu" else 1)
            piece = Piece(workload.kind, probe.axis, probe.lo, probe.hi)
            fails = (probe.key, probe.processor) in self.bad
            times, error = ((), "it fails") if fails else ((ms,), "")
            records.append(Record(probe.key, piece, probe.processor, "null device", "b", times, 0.0, error=error))
            self.store.add(records[-1:])
            self.batches[-1].append(probe)
        return records
