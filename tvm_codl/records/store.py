"""RecordStore: the measurements of all devices in one SQLite file, append-only."""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from tvm_codl.errors import UserError
from tvm_codl.records import canonical
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Processor, Record
from tvm_codl.records.rows import KERNEL, PLAN, RECORD, TABLES, R, Row, Table
from tvm_codl.records.schema import SCHEMA_VERSION as SCHEMA_VERSION
from tvm_codl.records.schema import STEPS

_BUSY_S = 30.0
#: Rows in one transaction; other writers get their turn in between.
_CHUNK = 2000


class RecordStore:
    """Append-only tables: records of pieces, kernel tuning records, whole plans, and the profiles of devices.

    Several processes may write at once: SQLite's write-ahead log orders them, each ``add`` is one transaction.
    A process that is killed loses at most the ``add`` that it was in.  Use one store in one thread.
    """

    def __init__(self, path: str | Path) -> None:
        """Open or create; a file of an older schema version is brought up to date, and keeps all its rows.

        Raises :class:`UserError` for a file that is no store or has a newer schema version.
        """
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
        except (OSError, sqlite3.DatabaseError) as error:
            raise UserError(
                f"{self.path} cannot be opened as a record store",
                str(error),
                "give a file that can be written: --records FILE",
            ) from error
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
            # Two processes may find the same old or new file: take the lock, then read the version again.
            # One transaction, the version included: a process that is killed in it has changed nothing.
            run("BEGIN EXCLUSIVE")
            with self._transaction():
                version = self._version()
                if version == 0 and run("SELECT 1 FROM sqlite_master").fetchone():
                    raise sqlite3.DatabaseError("an SQLite file of another program")
                if version > SCHEMA_VERSION:
                    raise sqlite3.DatabaseError(
                        f"record schema {version} of a newer tvm_codl, this one reads up to {SCHEMA_VERSION}"
                    )
                for step in STEPS[version:]:
                    for statement in step:
                        run(statement)
                run(f"PRAGMA user_version={SCHEMA_VERSION}")
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
            with contextlib.suppress(sqlite3.Error):  # a disk that is full has rolled it back already
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def add(self, records: Iterable[R]) -> int:
        """Append records of one kind; returns how many.  All of them are in the file when this returns, or none if it
        raises."""
        added = list(records)
        if not added:
            return 0
        table = TABLES[type(added[0])]
        return self._insert(table.insert, list(map(table.to_row, added)))

    def add_new(self, records: Iterable[R]) -> int:
        """Append the records of one kind that are not here yet; returns how many.

        The same record has all fields equal, times and moment included.  Commits every few thousand: after a crash,
        run again to complete.
        """
        left, count = iter(records), 0
        while part := list(islice(left, _CHUNK)):
            table = TABLES[type(part[0])]
            count += self._insert(table.insert_new, [row + row for row in map(table.to_row, part)])
        return count

    def _insert(self, statement: str, rows: Sequence[Row]) -> int:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            with self._transaction():
                return self._connection.executemany(statement, rows).rowcount
        except sqlite3.OperationalError as error:
            raise UserError(
                f"{self.path} cannot be written; its content is unchanged",
                str(error),
                f"is there room, and does no other program hold it?  df -h {shlex.quote(str(self.path.parent))}",
            ) from error

    def query(
        self,
        device: str | None = None,
        processor: str | None = None,
        workload: str | None = None,
        build: str | None = None,
        mode: str | None = None,
        kind: str | None = None,
    ) -> Iterator[Record]:
        """The records that match all given fields, oldest first."""
        fields = {"device": device, "processor": processor, "workload": workload, "build": build, "mode": mode}
        return self._read(RECORD, fields | {"kind": kind})

    def kernels(
        self, device: str | None = None, task: str | None = None, target: str | None = None
    ) -> Iterator[KernelRecord]:
        """The kernel tuning records that match all given fields, oldest first; ``target`` is compared as text."""
        return self._read(KERNEL, {"device": device, "task": task, "target": target})

    def plans(
        self, device: str | None = None, build: str | None = None, graph: str | None = None
    ) -> Iterator[PlanRecord]:
        """The whole plans that match all given fields, oldest first."""
        return self._read(PLAN, {"device": device, "build": build, "graph": graph})

    def totals(
        self,
        device: str | None = None,
        processor: str | None = None,
        kind: str | None = None,
        mode: str | None = None,
    ) -> list[tuple[str, Processor, str, int, int, int, float]]:
        """(device, processor, kind, records, failures, builds, newest Unix time) of the records that match."""
        numbers = "count(*), sum(error_no != 0), count(DISTINCT build), max(time)"
        fields = {"device": device, "processor": processor, "kind": kind, "mode": mode}
        columns = ("device", "processor", "kind", numbers)
        return list(self._select(RECORD.name, columns, fields, "GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"))

    def _read(self, table: Table[R], fields: dict[str, str | None]) -> Iterator[R]:
        return map(table.from_row, self._select(table.name, table.columns, fields))

    def _select(
        self, table: str, columns: Sequence[str], fields: dict[str, str | None], end: str = "ORDER BY id"
    ) -> Iterator[Any]:
        given = {name: value for name, value in fields.items() if value is not None}
        where = " AND ".join(f"{name}=?" for name in given) or "1"
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE {where} {end}"
        return self._connection.execute(sql, list(given.values()))

    def keep_profile(self, json_text: str) -> str:
        """Keeps a device's profile, a JSON object, and returns its digest: 16 hexadecimal digits of the SHA-256 of its
        canonical text.  Raises :class:`UserError` for text that is no JSON object."""
        try:
            value = canonical.parse(json_text)
            if not isinstance(value, dict):
                raise ValueError("not an object")
            text = canonical.dump(value)
        except ValueError as error:
            raise UserError("a device profile is no JSON object", f"{json_text[:80]!r}: {error}") from error
        digest = canonical.digest(text)
        if self.profile(digest) is None:
            self._insert("INSERT OR IGNORE INTO profile (digest, json) VALUES (?, ?)", [(digest, text)])
        return digest

    def profile(self, digest: str) -> str | None:
        """The canonical JSON text of a kept profile."""
        row = self._connection.execute("SELECT json FROM profile WHERE digest=?", (digest,)).fetchone()
        return None if row is None else str(row[0])

    def profiles(self) -> dict[str, str]:
        """Digest to canonical JSON text, of all kept profiles."""
        return dict(self._connection.execute("SELECT digest, json FROM profile ORDER BY rowid"))

    def __iter__(self) -> Iterator[Record]:
        return self.query()

    def __len__(self) -> int:
        """The records of pieces."""
        return int(self._connection.execute("SELECT count(*) FROM record").fetchone()[0])

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
