"""Records as rows of the store's tables, and back."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import FIELDS, Record, flatten, nest

Row = tuple[object, ...]
R = TypeVar("R", Record, KernelRecord, PlanRecord)

_TIMES = msgspec.json.Decoder(tuple[float, ...])


class Table(Generic[R]):
    """The table of one kind of record.  Columns have the fields' names, but ``time`` for the ``moment``.

    ``times`` is the field of the measured times, JSON text in the table.
    """

    def __init__(self, name: str, kind: type[R], times: str, moment: str) -> None:
        self.name, self._times, self._moment = name, times, moment
        self._kind: type[R] = kind
        fields = FIELDS if kind is Record else kind.__struct_fields__
        # SQLite keeps them as integers.
        self._truths = [field.name for field in msgspec.structs.fields(kind) if field.type is bool]
        self.columns = tuple("time" if field == moment else field for field in fields)
        places = ", ".join("?" * len(fields))
        same = " AND ".join(f"{column}=?" for column in self.columns)
        head = f"INSERT INTO {name} ({', '.join(self.columns)})"
        self.insert = f"{head} VALUES ({places})"
        #: Pass the row's values twice.
        self.insert_new = f"{head} SELECT {places} WHERE NOT EXISTS (SELECT 1 FROM {name} WHERE {same})"

    def to_row(self, record: R) -> Row:
        fields = flatten(record) if isinstance(record, Record) else msgspec.structs.asdict(record)
        fields["time"] = fields.pop(self._moment)
        fields[self._times] = msgspec.json.encode(fields[self._times]).decode()
        return tuple(fields[column] for column in self.columns)

    def from_row(self, row: Row) -> R:
        fields = dict(zip(self.columns, row, strict=True))
        fields[self._moment] = fields.pop("time")
        fields[self._times] = _TIMES.decode(str(fields[self._times]))
        fields |= {name: bool(fields[name]) for name in self._truths}
        return msgspec.convert(nest(fields) if self._kind is Record else fields, self._kind)


RECORD = Table("record", Record, "times_ms", "when")
KERNEL = Table("kernel", KernelRecord, "costs", "timestamp")
PLAN = Table("plan", PlanRecord, "times_ms", "when")
TABLES: dict[type, Table[Any]] = {Record: RECORD, KernelRecord: KERNEL, PlanRecord: PLAN}
