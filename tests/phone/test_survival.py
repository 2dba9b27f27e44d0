"""``kill -9`` of server, tracker and client in the middle of a session: no finished record is lost, and it completes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.phone.servers import phone_server, tvm_process, wait_until
from tests.phone.survivor import SLOW, measurer, measuring, poisoned, probes
from tvm_codl.device.connect import TrackerPhones, connect
from tvm_codl.device.spec import Tracker
from tvm_codl.measure import journal, libraries
from tvm_codl.measure.phone_pool import PhonePool
from tvm_codl.records.record import Record
from tvm_codl.records.store import RecordStore

MIDDLE = 4  # records, after which something is killed


@pytest.fixture(scope="module", autouse=True)
def built() -> Iterator[None]:
    """The libraries lie in the cache before anything is killed: the middle of a session is the middle of its timing."""
    with connect() as phone, RecordStore(":memory:") as store:
        one = measurer(phone, store)
        one.libraries(probes())
    yield


def stored(path: Path) -> list[Record]:
    if not path.exists():
        return []
    with RecordStore(path) as store:
        return list(store)


def kill_in_the_middle(path: Path, kill: Callable[[], None]) -> tuple[threading.Thread, list[Record]]:
    """Runs ``kill`` as soon as the store holds some records; the list then holds those of just before."""
    before: list[Record] = []

    def watch() -> None:
        wait_until(lambda: len(stored(path)) >= MIDDLE, "the first records", 120.0)
        before.extend(stored(path))
        kill()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread, before


def check(path: Path, before: list[Record], records: list[Record]) -> None:
    after = stored(path)
    assert MIDDLE <= len(before) < len(probes()), "nothing was killed in the middle"
    assert after[: len(before)] == before, "a finished record is lost"
    assert {(r.workload, r.processor) for r in records} == {(p.key, p.processor) for p in probes()}
    assert all(r.ok for r in records), [r.error for r in records if r.error]
    assert not journal.folder_of(path).exists()


def own(name: str) -> list[psutil.Process]:
    """This process's children that run a module of that name."""
    return [c for c in psutil.Process().children() if name in " ".join(c.cmdline())]


def test_kill_of_the_local_phones_server(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with measuring(path) as running:
        thread, before = kill_in_the_middle(path, lambda: own("tvm_codl.device.reference.server")[0].kill())
        records = running.measure(probes())
        thread.join()
    check(path, before, records)


def test_kill_of_the_local_phones_session(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"

    def kill() -> None:
        (server,) = own("tvm_codl.device.reference.server")
        server.children()[0].kill()

    with measuring(path) as running:
        thread, before = kill_in_the_middle(path, kill)
        records = running.measure(probes())
        thread.join()
    check(path, before, records)


@pytest.mark.slow
def test_a_session_that_hangs_is_left(tmp_path: Path) -> None:
    """Stopped for good in the middle of a call: the candidate is recorded, the phone frees itself, the rest is measured."""
    path = tmp_path / "records.sqlite"
    impatient = msgspec.structs.replace(SLOW, first_s=4.0, floor_s=4.0, load_s=20.0)
    with measuring(path, settings=impatient) as running:
        (server,) = own("tvm_codl.device.reference.server")
        thread, before = kill_in_the_middle(path, lambda: server.children()[0].suspend())
        records = running.measure(probes())
        thread.join()
    failed = [r for r in records if not r.ok]
    assert len(failed) <= 1, [r.error for r in failed]
    assert all("not done within" in r.error for r in failed)
    assert stored(path)[: len(before)] == before
    assert len(records) == len(probes())


@pytest.mark.parametrize(
    ("call", "words"),
    [("abort", "ended 2 times while it ran"), pytest.param("pause", "not done within", marks=pytest.mark.slow)],
)
def test_a_kernel_that_kills_or_hangs_the_phone_is_recorded_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, words: str
) -> None:
    few = [p for p in probes() if p.processor == "cpu"][:4]
    monkeypatch.setattr(libraries, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(libraries, "build_batch", poisoned(few[1], call))
    impatient = msgspec.structs.replace(SLOW, first_s=4.0, floor_s=4.0)
    with connect() as phone, RecordStore(tmp_path / "records.sqlite") as store:
        running = measurer(phone, store, impatient)
        records = running.measure(few)
        opened = phone.opened
        assert [r.ok for r in records] == [True, False, True, True], [r.error for r in records]
        assert words in records[1].error
        assert opened == (3 if call == "abort" else 2)
        assert running.measure(few) == records, "it was tried again"
        assert phone.opened == opened


def client(path: Path, *where: object) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "tests.phone.survivor", str(path), *map(str, where)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ)


def test_kill_of_the_client(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    first = client(path)
    thread, before = kill_in_the_middle(path, lambda: first.send_signal(signal.SIGKILL))
    thread.join()
    assert first.wait(10) == -signal.SIGKILL
    assert journal.suspects(path), "what ran when the client died is not known"
    second = client(path)
    words, _ = second.communicate(timeout=120)
    assert second.returncode == 0, words
    assert f"{len(probes())} records" in words
    after = stored(path)
    check(path, before, after)
    assert len(after) == len(probes()), "something was measured twice"


@pytest.mark.slow
def test_kill_of_a_phone_of_a_fleet(tmp_path: Path) -> None:
    """Two phones behind a tracker, one of which dies in the middle: the other does its work."""
    path = tmp_path / "records.sqlite"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with tvm_process("rpc_tracker") as (host, port):
        tracker = f"{host}:{port}"
        options = {"port": 0, "key": "pixel", "tracker": tracker}
        with phone_server(tmp_path / "a", **options) as a, phone_server(tmp_path / "b", **options) as b:
            a.wait_for("registered")
            b.wait_for("registered")
            words: list[str] = []
            pool = PhonePool(TrackerPhones(Tracker(host, port, "pixel")), log=words.append)
            assert len(pool.phones) == 2
            with RecordStore(path) as store:
                running = measurer(pool, store, log=words.append)
                thread, before = kill_in_the_middle(path, b.process.kill)
                records = running.measure(probes())
                thread.join()
            pool.close()
            b.process.wait(10)
    check(path, before, records)
    assert len(pool.phones) == 1
    assert any("go to the others" in text for text in words), words
