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
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.record import ErrorNo, Piece, Record
from tvm_codl.records.store import SCHEMA_VERSION, RecordStore

WRITER = """
import sys
from tests.unit.records.test_store import kernel, record
from tvm_codl.records.store import RecordStore
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with RecordStore(path) as store:
    for index in range(count):
        store.add([record(f"{name}-{index}", part) for part in range(3)])
        store.add([kernel(f"{name}-{index}", part=part) for part in range(2)])
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


def kernel(task: str = "conv2d_nhwc.codl", **fields: object) -> KernelRecord:
    part = fields.pop("part", 0)
    values: dict[str, object] = {
        "target": "llvm -mcpu=core-avx2",
        "task": task,
        "args": f'[["TENSOR", [1, 56, 56, 64], "float32"], {part}]',
        "config": '{"index": 3, "code_hash": null, "entity": [["rows", "ot", 2]]}',
        "costs": (0.0015, 0.00125),
        "all_cost": 2.5,
        "timestamp": 1700000000.25,
        "device": "phone",
        "tvm_version": "0.19.0",
    }
    return KernelRecord(**(values | fields))  # type: ignore[arg-type]


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


def test_an_error_has_a_number_and_a_number_is_an_error() -> None:
    assert record().error_no == ErrorNo.NO_ERROR
    assert record(times_ms=()).error_no == ErrorNo.UNKNOWN_ERROR
    assert record(error="odd").error_no == ErrorNo.UNKNOWN_ERROR
    assert record(times_ms=(), error="slow", error_no=7).error_no == ErrorNo.RUN_TIMEOUT
    assert not record(error_no=ErrorNo.WRONG_ANSWER).ok
    assert type(record(error_no=ErrorNo.WRONG_ANSWER).error_no) is int


@pytest.mark.parametrize(
    "fields", [{"times_ms": (float("inf"),)}, {"times_ms": (-1.0,)}, {"when": float("nan")}, {"error_no": 9}]
)
def test_what_could_not_be_read_again_is_no_record(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        record(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        *({"costs": ()}, {"costs": (float("nan"),)}, {"error_no": 9}, {"args": "{}"}, {"args": "["}, {"config": "[]"}),
        *({"target": " "}, {"task": ""}, {"timestamp": float("inf")}, {"args": "[NaN]"}),
    ],
)
def test_what_autotvm_could_not_read_is_no_kernel_record(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        kernel(**fields)


def test_kernel_records_are_canonical_and_failures_cost_nothing() -> None:
    assert kernel(args="[ 1,\n2 ]", config='{"b": 1, "a": [2]}').config == '{"a":[2],"b":1}'
    failed = kernel(costs=(1e9,), error_no=4)
    assert failed.costs == () and failed.seconds == float("inf") and not failed.ok
    assert kernel().seconds == 0.001375 and kernel().processor == "cpu"
    assert kernel(target="opencl -device=mali").processor == "gpu"


def test_kernels_come_out_in_order_and_by_what_is_given(tmp_path: Path) -> None:
    made = [kernel(), kernel(costs=(), error_no=6), kernel("dense.codl"), kernel(device=""), kernel(target="opencl")]
    with RecordStore(tmp_path / "records.db") as store:
        assert store.add(made) == 5 and len(store) == 0
    with RecordStore(tmp_path / "records.db") as store:
        assert list(store.kernels()) == made
        assert list(store.kernels(device="")) == [made[3]]
        assert list(store.kernels("phone", "conv2d_nhwc.codl", "llvm -mcpu=core-avx2")) == made[:2]
        assert list(store.kernels(task="none")) == []


def test_what_is_known_is_not_added_again(tmp_path: Path) -> None:
    made = [record(), record(when=1.0), record(times_ms=(1.5, 1.25, 9.5)), record(mode="shared"), record(schedule="{}")]
    tried = [kernel(), kernel(all_cost=2.75), kernel(costs=(), error_no=8)]
    with RecordStore(tmp_path / "records.db") as store:
        assert store.add_new([*made, record()]) == 5 and store.add_new([*tried, kernel()]) == 3
        assert store.add_new(reversed([*made, record("new")])) == 1 and store.add_new(tried) == 0
        assert list(store) == [*made, record("new")] and list(store.kernels()) == tried
        assert store.add([record()]) == 1, "a measurement is appended whatever it says"


def test_profiles_are_kept_once_by_what_they_say(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.db") as store:
        digest = store.keep_profile('{"name": "phone", "cores": [0, 1]}')
        assert len(digest) == 16 and int(digest, 16) >= 0
        assert store.keep_profile('{"cores":[0,1],\n"name":"phone"}') == digest
        assert store.keep_profile('{"name": "other"}') != digest
        assert store.profile(digest) == '{"cores":[0,1],"name":"phone"}' and store.profile("") is None
        assert len(store.profiles()) == 2 and store.profiles()[digest] == store.profile(digest)
        for text in ("[]", "phone", '{"a": NaN}', ""):
            with pytest.raises(UserError, match="profile"):
                store.keep_profile(text)


def test_lookups_use_the_indices(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.db") as store:
        store.add([record(f"{i}") for i in range(100)])
    connection = sqlite3.connect(tmp_path / "records.db")

    def plan(where: str) -> str:
        return str(connection.execute(f"EXPLAIN QUERY PLAN SELECT * FROM {where}").fetchall())

    assert "record_by_build" in plan("record WHERE device='d' AND build='b' AND mode='alone' ORDER BY id")
    one = "device='d' AND processor='cpu' AND workload='w'"
    assert "record_by_workload" in plan(f"record WHERE {one} ORDER BY id")
    assert "record_by_workload" in plan(f"record WHERE {one} AND build='b' AND mode='alone' ORDER BY id")
    assert "record_by_workload" in plan(f"record WHERE {one} AND build='b' AND time=1 AND mode='alone' AND error_no=0")
    assert "kernel_by_task" in plan("kernel WHERE task='t' AND target='u' AND args='[]' AND device='d' AND time=1")
    connection.close()


def test_records_are_never_changed_or_deleted(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.db") as store:
        store.add([record()])
        store.add([kernel()])
        store.keep_profile("{}")
    connection = sqlite3.connect(tmp_path / "records.db")
    for table, column in (("record", "error"), ("kernel", "task"), ("profile", "json")):
        for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET {column}='x'"):
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
        assert len(store) == 2 * 60 * 3 and len(list(store.kernels())) == 2 * 60 * 2
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
        tried = [k.task for k in store.kernels()]
    kernels = sum(task.startswith("victim-") for task in tried)
    assert kernels % 2 == 0 and acknowledged <= kernels // 2 <= acknowledged + 1
    assert sum(task.startswith("other-") for task in tried) == 120
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


def test_a_store_that_cannot_be_opened_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "records.db", tmp_path):
        with pytest.raises(UserError, match="cannot be opened as a record store") as raised:
            RecordStore(path)
        assert "--records FILE" in raised.value.next


def test_a_store_of_another_version_or_program_is_refused(tmp_path: Path) -> None:
    for name, statement in (("later", f"PRAGMA user_version={SCHEMA_VERSION + 1}"), ("foreign", "CREATE TABLE t (x)")):
        connection = sqlite3.connect(tmp_path / name)
        connection.execute(statement)
        connection.close()
        with pytest.raises(UserError, match=name):
            RecordStore(tmp_path / name)


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.db") as store:
        store.add([record()])
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(UserError, match="cannot be written") as raised:
            store.add([record(error="x" * 100_000)])
        assert "full" in raised.value.evidence and "df -h" in raised.value.next
        assert len(store) == 1
