from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tvm_codl.errors import UserError
from tvm_codl.records.record import Piece, Record
from tvm_codl.records.store import SCHEMA_VERSION, RecordStore

WRITER = """
import sys
from tests.unit.records.test_store import record
from tvm_codl.records.store import RecordStore
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with RecordStore(path) as store:
    for index in range(count):
        store.add([record(f"{name}-{index}", part) for part in range(3)])
        print(index, flush=True)
"""


def record(key: str = "conv", part: int = 0, **fields: object) -> Record:
    values: dict[str, object] = {
        "workload": key,
        "piece": Piece("conv2d", "height", part, part + 1, 3),
        "processor": "gpu",
        "device": "phone",
        "build": "b1",
        "times_ms": (1.5, 1.25, 9.0),
        "when": 1700000000.25,
    }
    return Record(**(values | fields))  # type: ignore[arg-type]


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True
    )


def test_what_goes_in_comes_out_in_order(tmp_path: Path) -> None:
    records = [record(), record(processor="cpu", mode="shared"), record("relu", times_ms=(), error="no such kernel")]
    with RecordStore(tmp_path / "new" / "records.db") as store:
        assert store.add(records) == 3
        assert list(store) == records and len(store) == 3
    with RecordStore(tmp_path / "new" / "records.db") as store:
        assert list(store) == records


def test_a_query_matches_all_that_is_given(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.db") as store:
        store.add([record(), record(processor="cpu"), record("relu"), record(device="other"), record(build="b2")])
        assert list(store.query("phone", "gpu", "conv", build="b1")) == [record()]
        assert len(list(store.query(device="phone"))) == 4
        assert list(store.query(workload="nothing")) == []


def test_a_failed_measurement_is_infinite() -> None:
    assert record().median_ms == 1.5 and record().ok
    failed = record(times_ms=(), error="timeout")
    assert failed.median_ms == float("inf") and not failed.ok


def test_records_are_never_changed_or_deleted(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.db") as store:
        store.add([record()])
    connection = sqlite3.connect(tmp_path / "records.db")
    for statement in ("DELETE FROM record", "UPDATE record SET error='x'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()


def test_an_add_is_all_or_nothing(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.db") as store:
        with pytest.raises(sqlite3.Error):
            store.add([record(), record(device=None)])
        assert len(store) == 0
        store.add([record()])
        assert len(store) == 1


def test_two_processes_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    writers = [writer(path, name, 60) for name in ("a", "b")]
    for process in writers:
        process.communicate(timeout=60)
    assert [process.returncode for process in writers] == [0, 0]
    with RecordStore(path) as store:
        assert len(store) == 2 * 60 * 3
        assert sorted({r.workload for r in store}) == sorted(f"{n}-{i}" for n in ("a", "b") for i in range(60))


def test_a_killed_writer_loses_at_most_what_it_was_writing(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    other, victim = writer(path, "other", 60), writer(path, "victim", 1_000_000)
    assert victim.stdout is not None
    finished = [victim.stdout.readline() for _ in range(20)]
    time.sleep(0.01)
    os.kill(victim.pid, signal.SIGKILL)
    rest = victim.stdout.read().split()
    victim.wait(timeout=60)
    other.communicate(timeout=60)
    assert other.returncode == 0
    acknowledged = len(finished) + len(rest)
    with RecordStore(path) as store:
        store.add([record("after")])
        found = [r.workload for r in store]
    written = sum(key.startswith("victim-") for key in found)
    assert written % 3 == 0 and acknowledged <= written // 3 <= acknowledged + 1
    assert sum(key.startswith("other-") for key in found) == 180
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("content", [b"no database, but long enough to be told apart " * 30, b"short"])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"records\.db"):
        RecordStore(path)
    assert path.read_bytes() == content


def test_a_store_of_another_version_or_program_is_refused(tmp_path: Path) -> None:
    for name, statement in (("later", f"PRAGMA user_version={SCHEMA_VERSION + 1}"), ("foreign", "CREATE TABLE t (x)")):
        connection = sqlite3.connect(tmp_path / name)
        connection.execute(statement)
        connection.close()
        with pytest.raises(UserError, match=name):
            RecordStore(tmp_path / name)
