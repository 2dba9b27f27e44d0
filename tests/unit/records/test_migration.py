"""A store of an older schema version opens, keeps all, and survives whatever happens to the process meanwhile."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.unit.records.test_plan_record import PLAN
from tests.unit.records.test_store import kernel, record
from tvm_codl.errors import UserError
from tvm_codl.records.record import ErrorNo
from tvm_codl.records.schema import STEPS
from tvm_codl.records.store import SCHEMA_VERSION, RecordStore

#: Written out: what the first version made must stay as it was.
FIRST = """
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    workload TEXT NOT NULL, kind TEXT NOT NULL, axis TEXT NOT NULL,
    lo INTEGER NOT NULL, hi INTEGER NOT NULL, extent INTEGER NOT NULL,
    processor TEXT NOT NULL, device TEXT NOT NULL, build TEXT NOT NULL, mode TEXT NOT NULL,
    times_ms TEXT NOT NULL, error TEXT NOT NULL, time REAL NOT NULL
) STRICT;
CREATE INDEX record_by_workload ON record (device, processor, workload);
CREATE TRIGGER record_kept BEFORE DELETE ON record BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER record_fixed BEFORE UPDATE ON record BEGIN SELECT RAISE(ABORT, 'append-only'); END;
PRAGMA user_version=1;
PRAGMA journal_mode=WAL;
"""
#: Likewise what the second version made of it.
SECOND = """
ALTER TABLE record ADD COLUMN error_no INTEGER NOT NULL DEFAULT 0;
ALTER TABLE record ADD COLUMN profile TEXT NOT NULL DEFAULT '';
ALTER TABLE record ADD COLUMN schedule TEXT NOT NULL DEFAULT '';
CREATE INDEX record_by_build ON record (build, device);
CREATE TABLE profile (digest TEXT NOT NULL PRIMARY KEY, json TEXT NOT NULL) STRICT;
CREATE TRIGGER profile_kept BEFORE DELETE ON profile BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER profile_fixed BEFORE UPDATE ON profile BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TABLE kernel (
    id INTEGER PRIMARY KEY,
    target TEXT NOT NULL, task TEXT NOT NULL, args TEXT NOT NULL, config TEXT NOT NULL,
    costs TEXT NOT NULL, error_no INTEGER NOT NULL, all_cost REAL NOT NULL, time REAL NOT NULL,
    device TEXT NOT NULL, profile TEXT NOT NULL, tvm_version TEXT NOT NULL
) STRICT;
CREATE INDEX kernel_by_task ON kernel (task, target, device, time);
CREATE INDEX kernel_by_device ON kernel (device);
CREATE TRIGGER kernel_kept BEFORE DELETE ON kernel BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER kernel_fixed BEFORE UPDATE ON kernel BEGIN SELECT RAISE(ABORT, 'append-only'); END;
PRAGMA user_version=2;
"""
INSERT_KERNEL = (
    "INSERT INTO kernel (target, task, args, config, costs, error_no, all_cost, time, device, profile, tvm_version) VALUES"
    " ('llvm', 'conv2d_nhwc.codl', '[]', '{}', '[0.5]', 0, 1.0, 2.0, 'phone', '0123456789abcdef', '0.19.0')"
)
INSERT = (
    "INSERT INTO record (workload, kind, axis, lo, hi, extent, processor, device, build, mode, times_ms, error, time)"
    " VALUES (?, 'conv2d', 'height', 0, 1, 3, 'gpu', 'phone', 'b1', 'alone', ?, ?, 1700000000.25)"
)
OPEN = """
import os, signal, sqlite3, sys
from tvm_codl.records.store import RecordStore
path, last = sys.argv[1], int(sys.argv[2])
class Mortal(sqlite3.Connection):
    def execute(self, *arguments):
        global last
        if arguments[0] == "BEGIN EXCLUSIVE" or last < int(sys.argv[2]):
            if last == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            last -= 1
        return super().execute(*arguments)
if last >= 0:
    connect = sqlite3.connect
    sqlite3.connect = lambda *a, **k: connect(*a, factory=Mortal, **k)
with RecordStore(path) as store:
    print(len(store))
"""


def first_version(path: Path, rows: int = 10) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(FIRST)
    connection.executemany(INSERT, [(f"w{i}", "[1.5,1.25,9.0]", "") for i in range(rows)])
    connection.execute(INSERT, ("failed", "[]", "no such kernel"))
    connection.commit()
    connection.close()


def second_version(path: Path, rows: int = 10) -> None:
    first_version(path, rows)
    connection = sqlite3.connect(path)
    connection.executescript(SECOND)
    connection.execute("INSERT INTO profile (digest, json) VALUES ('0123456789abcdef', '{}')")
    connection.execute(INSERT_KERNEL)
    connection.commit()
    connection.close()


def opening(path: Path, last: int = -1) -> subprocess.Popen[str]:
    """A process that opens the store and, if ``last`` is given, is killed after that many statements of the migration."""
    command = [sys.executable, "-c", OPEN, str(path), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def schema(path: Path) -> set[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = set(connection.execute("SELECT type, name FROM sqlite_master"))
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    return rows


def test_a_store_of_the_first_version_keeps_all_and_gains_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    first_version(path)
    with RecordStore(path) as store:
        records = list(store)
        assert records[:-1] == [record(f"w{i}") for i in range(10)]
        assert (records[-1].error, records[-1].error_no) == ("no such kernel", ErrorNo.UNKNOWN_ERROR)
        assert list(store.kernels()) == [] and store.profiles() == {}
        store.add([record(schedule="{}", profile="0" * 16)])
        store.add([kernel()])
    with RecordStore(path) as store:
        assert len(store) == 12 and len(list(store.kernels())) == 1
    RecordStore(tmp_path / "new.db").close()
    assert schema(path) == schema(tmp_path / "new.db")
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("UPDATE record SET error='x'")
    connection.close()


def test_a_store_of_the_second_version_keeps_all_and_gains_plans(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    second_version(path)
    with RecordStore(path) as store:
        assert list(store)[:-1] == [record(f"w{i}") for i in range(10)]
        assert [k.costs for k in store.kernels()] == [(0.5,)]
        assert store.profiles() == {"0123456789abcdef": "{}"}
        assert list(store.plans()) == []
        store.add([PLAN])
        store.add([replace(PLAN, disturbed=True)])
    with RecordStore(path) as store:
        assert list(store.plans()) == [PLAN, replace(PLAN, disturbed=True)]
    RecordStore(tmp_path / "new.db").close()
    assert schema(path) == schema(tmp_path / "new.db")


def test_plans_of_the_third_version_were_not_disturbed(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    second_version(path)
    connection = sqlite3.connect(path)
    for statement in STEPS[2]:
        connection.execute(statement)
    row = (
        *(getattr(PLAN, name) for name in ("model", "device", "build", "graph", "placements", "settings")),
        PLAN.when,
    )
    connection.execute("INSERT INTO plan VALUES (1, ?, ?, ?, ?, ?, ?, 2.0, '[2.5,2.25,9.0]', ?)", row)
    connection.execute("PRAGMA user_version=3")
    connection.commit()
    connection.close()
    with RecordStore(path) as store:
        assert list(store.plans()) == [PLAN]


def test_a_process_of_the_second_version_may_go_on_appending(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    second_version(path)
    old = sqlite3.connect(path, isolation_level=None)
    old.execute(INSERT_KERNEL)
    with RecordStore(path) as store:
        old.execute(INSERT_KERNEL)
        assert len(list(store.kernels())) == 3
    old.close()


def test_a_process_of_the_first_version_may_go_on_appending(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    first_version(path)
    old = sqlite3.connect(path, isolation_level=None)
    old.execute(INSERT, ("before", "[1.5,1.25,9.0]", ""))
    with RecordStore(path) as store:
        old.execute(INSERT, ("after", "[1.5,1.25,9.0]", ""))
        old.execute(INSERT, ("bad", "[]", "died"))
        assert list(store.query(workload="after")) == [record("after")]
        assert next(store.query(workload="bad")).error_no == ErrorNo.UNKNOWN_ERROR
    old.close()


def test_a_process_killed_at_any_statement_of_the_migration_has_changed_nothing(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    first_version(path)
    before = schema(path)
    statements = sum(map(len, STEPS[1:]))
    for last in (1, 2, 5, 8, statements, statements + 3):
        process = opening(path, last)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, "it lived through more than the migration has"
        assert schema(path) == before
    with RecordStore(path) as store:
        assert len(store) == 11


def test_processes_that_open_an_old_store_at_once_migrate_it_once(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    first_version(path, 2000)
    processes = [opening(path) for _ in range(4)]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == ["2001"] * 4
    assert [process.returncode for process in processes] == [0] * 4


def test_a_newer_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with RecordStore(path) as store:
        store.add([record()])
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    before = schema(path)
    with pytest.raises(UserError, match="newer"):
        RecordStore(path)
    assert schema(path) == before
