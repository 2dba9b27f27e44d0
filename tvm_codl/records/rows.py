"""Records as rows of the store's tables, and back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Piece, Record

Row = tuple[object, ...]

RECORD = (
    *("workload", "kind", "axis", "lo", "hi", "extent", "processor", "device", "build", "mode"),
    *("times_ms", "error", "time", "error_no", "profile", "schedule"),
)
KERNEL = (
    *("target", "task", "args", "config", "costs", "error_no", "all_cost", "time", "device", "profile"),
    "tvm_version",
)
PLAN = ("model", "device", "build", "graph", "placements", "settings", "predicted_ms", "times_ms", "time")
_TIMES = msgspec.json.Decoder(tuple[float, ...])


def insertion(table: str, columns: Sequence[str], new: bool = False) -> str:
    """The statement that appends a row; with ``new`` it takes the row twice, and appends what is not there."""
    places = ", ".join("?" * len(columns))
    head = f"INSERT INTO {table} ({', '.join(columns)})"
    if not new:
        return f"{head} VALUES ({places})"
    return f"{head} SELECT {places} WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {' AND '.join(f'{c}=?' for c in columns)})"


def record_row(record: Record) -> Row:
    piece = record.piece
    return (
        *(record.workload, piece.kind, piece.axis, piece.lo, piece.hi, piece.extent),
        *(record.processor, record.device, record.build, record.mode, _times(record.times_ms)),
        *(record.error, record.when, record.error_no, record.profile, record.schedule),
    )


def record_of(row: Row) -> Record:
    fields = dict(zip(RECORD, row, strict=True))
    piece = {name: fields.pop(name) for name in ("kind", "axis", "lo", "hi", "extent")}
    times = _TIMES.decode(str(fields.pop("times_ms")))
    fields |= {"piece": Piece(**piece), "times_ms": times, "when": fields.pop("time")}  # type: ignore[arg-type]
    return msgspec.convert(fields, Record)


def kernel_row(record: KernelRecord) -> Row:
    return (
        *(record.target, record.task, record.args, record.config, _times(record.costs), record.error_no),
        *(record.all_cost, record.timestamp, record.device, record.profile, record.tvm_version),
    )


def kernel_of(row: Row) -> KernelRecord:
    fields = dict(zip(KERNEL, row, strict=True))
    fields |= {"costs": _TIMES.decode(str(fields["costs"])), "timestamp": fields.pop("time")}
    return msgspec.convert(fields, KernelRecord)


def plan_row(record: PlanRecord) -> Row:
    return (
        *(record.model, record.device, record.build, record.graph, record.placements, record.settings),
        *(record.predicted_ms, _times(record.times_ms), record.when),
    )


def plan_of(row: Row) -> PlanRecord:
    fields = dict(zip(PLAN, row, strict=True))
    fields |= {"times_ms": _TIMES.decode(str(fields["times_ms"])), "when": fields.pop("time")}
    return msgspec.convert(fields, PlanRecord)


def _times(values: tuple[float, ...]) -> str:
    return msgspec.json.encode(values).decode()
