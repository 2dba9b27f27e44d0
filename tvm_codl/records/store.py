"""RecordStore: the measurements of all devices in one SQLite file, append-only."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.records.record import Piece, Record

SCHEMA_VERSION = 1
_BUSY_S = 30.0
_COLUMNS = "workload, kind, axis, lo, hi, extent, processor, device, build, mode, times_ms, error, time"
_SCHEMA = (
    """CREATE TABLE record (
        id INTEGER PRIMARY KEY,
        workload TEXT NOT NULL, kind TEXT NOT NULL, axis TEXT NOT NULL,
        lo INTEGER NOT NULL, hi INTEGER NOT NULL, extent INTEGER NOT NULL,
        processor TEXT NOT NULL, device TEXT NOT NULL, build TEXT NOT NULL, mode TEXT NOT NULL,
        times_ms TEXT NOT NULL, error TEXT NOT NULL, time REAL NOT NULL
    ) STRICT""",
    "CREATE INDEX record_by_workload ON record (device, processor, workload)",
    "CREATE TRIGGER record_kept BEFORE DELETE ON record BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    "CREATE TRIGGER record_fixed BEFORE UPDATE ON record BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    f"PRAGMA user_version={SCHEMA_VERSION}",
)


class RecordStore:
    """Several processes may write at once: SQLite's write-ahead log orders them, each ``add`` is one transaction.

    A process that is killed loses at most the ``add`` that it was in.  Use one store in one thread.
    """

    def __init__(self, path: str | Path) -> None:
        """Open or create.  Raises :class:`UserError` for a file that is no store or has another schema version."""
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
        except (OSError, sqlite3.DatabaseError) as error:
            raise UserError(f"{self.path} cannot be opened as a record store", str(error)) from error
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise UserError(
                f"{self.path} cannot be used as a record store", str(error), "give another file, or move this one away"
            ) from error

    def _prepare(self) -> None:
        run = self._connection.execute
        if self._version() != SCHEMA_VERSION:
            # Two processes may both find a new file: the lock decides who writes the schema, the other looks again.
            run("BEGIN EXCLUSIVE")
            with self._transaction():
                found = self._version()
                if found == 0 and run("SELECT 1 FROM sqlite_master").fetchone():
                    raise sqlite3.DatabaseError("an SQLite file of another program")
                if found not in (0, SCHEMA_VERSION):
                    raise sqlite3.DatabaseError(f"record schema {found}, this version reads {SCHEMA_VERSION}")
                if found == 0:
                    for statement in _SCHEMA:
                        run(statement)
        self._write_ahead()
        run("PRAGMA synchronous=NORMAL")

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _write_ahead(self) -> None:
        """SQLite does not wait for its lock when the journal's mode changes, so wait here."""
        until = time.monotonic() + _BUSY_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def add(self, records: Iterable[Record]) -> int:
        """Append; returns how many.  All of them are in the file when this returns, or none if it raises."""
        rows = [_row(record) for record in records]
        self._connection.execute("BEGIN IMMEDIATE")
        with self._transaction():
            self._connection.executemany(
                f"INSERT INTO record ({_COLUMNS}) VALUES ({','.join('?' * 13)})",
                rows,
            )
        return len(rows)

    def query(
        self,
        device: str | None = None,
        processor: str | None = None,
        workload: str | None = None,
        build: str | None = None,
        mode: str | None = None,
    ) -> Iterator[Record]:
        """The records that match all given fields, oldest first."""
        fields = {"device": device, "processor": processor, "workload": workload, "build": build, "mode": mode}
        given = {name: value for name, value in fields.items() if value is not None}
        where = " AND ".join(f"{name}=?" for name in given) or "1"
        sql = f"SELECT {_COLUMNS} FROM record WHERE {where} ORDER BY id"
        for row in self._connection.execute(sql, list(given.values())):
            yield _record(row)

    def __iter__(self) -> Iterator[Record]:
        return self.query()

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM record").fetchone()[0])

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _row(record: Record) -> tuple[object, ...]:
    piece = record.piece
    times = msgspec.json.encode(record.times_ms).decode()
    return (
        *(record.workload, piece.kind, piece.axis, piece.lo, piece.hi, piece.extent),
        *(record.processor, record.device, record.build, record.mode, times, record.error, record.when),
    )


def _record(row: tuple[object, ...]) -> Record:
    workload, kind, axis, lo, hi, extent, processor, device, build, mode, times_ms, error, when = row
    return msgspec.convert(
        {
            "workload": workload,
            "piece": Piece(str(kind), str(axis), int(str(lo)), int(str(hi)), int(str(extent))),
            "processor": processor,
            "device": device,
            "build": build,
            "times_ms": msgspec.json.decode(str(times_ms), type=tuple[float, ...]),
            "when": when,
            "mode": mode,
            "error": error,
        },
        Record,
    )
