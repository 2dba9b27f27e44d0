"""A measurer against a phone and a compiler that are none: what is asked, what is recorded, what is not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tvm
from msgspec.structs import replace

from tests.measure.null_phone import PROFILE, NullCompiler, NullPhone, network, null_measurer
from tvm_codl.errors import DeviceError
from tvm_codl.measure import journal, worker
from tvm_codl.measure import measurer as measuring
from tvm_codl.measure.baseline import baseline_probes
from tvm_codl.measure.measurer import Measurer
from tvm_codl.measure.probe import whole_probes
from tvm_codl.measure.settings import Settings
from tvm_codl.records.store import RecordStore

#: Without looking for drift, and without long waits.
PLAIN = Settings(baseline_every=1000, first_s=0.3, floor_s=0.3, load_s=0.3, load_each_s=0.0)


def opened(store: RecordStore, phone: object, settings: Settings = PLAIN, **options: Any) -> Measurer:
    return null_measurer(store, phone, settings, **options)


def test_every_probe_becomes_a_record_of_its_own_region(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    measurer = opened(store, phone)
    probes = whole_probes(measurer.graph)
    records = measurer.measure(probes)
    assert [(r.workload, r.processor) for r in records] == [(p.key, p.processor) for p in probes]
    assert [r.median_ms for r in records] == [0.5 + i for i in range(len(probes))]
    assert all((r.device, r.build, r.ok) == ("null phone", "b1", True) for r in records)
    assert list(store) == records
    assert not phone.held, "libraries stay on the phone"
    assert not journal.folder_of(store.path).exists()


def test_what_is_known_is_not_measured_again(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    probes = whole_probes(network())
    opened(store, phone).measure(probes[:4])
    phone.timed.clear()
    records = opened(store, phone).measure(probes)
    assert set(phone.timed) == set(range(len(probes) - 4))
    assert {(r.workload, r.processor) for r in records} == {(p.key, p.processor) for p in probes}
    phone.timed.clear()
    compiler.batches.clear()
    opened(store, phone).measure(probes)
    assert phone.timed == compiler.batches == []
    assert len(store) == len(probes)


def test_another_build_or_device_is_measured_anew(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    probes = whole_probes(network(1))
    opened(store, phone).measure(probes)
    opened(store, phone, build="b2").measure(probes)
    assert len(store) == 2 * len(probes)
    assert opened(store, NullPhone(profile=replace(PROFILE, name="another phone"))).newest_records() == {}


def test_a_build_that_fails_is_halved_until_it_stands_alone(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    measurer = opened(store, phone)
    probes = whole_probes(measurer.graph)
    bad = probes[5]
    compiler.bad = {(bad.key, bad.processor)}
    records = {(r.workload, r.processor): r for r in measurer.measure(probes)}
    assert len(records) == len(probes)
    failed = records.pop((bad.key, bad.processor))
    assert (failed.ok, failed.times_ms) == (False, ())
    assert failed.error == "RuntimeError: cannot lower this"
    assert failed.median_ms == float("inf")
    assert all(record.ok for record in records.values())
    # Known to fail: it is not built again, unless asked.
    compiler.batches.clear()
    measurer.measure(probes)
    assert compiler.batches == []
    compiler.bad = set()
    retried = measurer.measure(probes, retry_failed=True)
    assert compiler.batches == [1]
    assert all(r.ok for r in retried)


def test_what_breaks_a_limit_of_the_device_is_not_sent(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    measurer = opened(store, phone)
    probes = whole_probes(measurer.graph)
    compiler.large = {(p.key, p.processor) for p in probes[2:4]}
    records = {(r.workload, r.processor): r for r in measurer.measure(probes)}
    assert len(records) == len(probes)
    assert {key for key, r in records.items() if not r.ok} == compiler.large
    assert all("512 work-items; the device allows 256" in records[key].error for key in compiler.large)
    assert compiler.batches == [len(probes), len(probes) - 2]


def test_a_kernel_that_fails_on_the_phone_is_an_error_record(store: RecordStore, compiler: NullCompiler) -> None:
    def fail(region: int) -> None:
        if region == 2:
            raise tvm.error.TVMError("Stack trace:\nOpenCL error -54: work-group size")

    measurer = opened(store, NullPhone(fail))
    records = measurer.measure(whole_probes(measurer.graph))
    assert [r.ok for r in records] == [i != 2 for i in range(len(records))]
    assert "work-group size" in records[2].error


def test_a_phone_that_never_comes_back_loses_only_what_was_not_finished(
    store: RecordStore, compiler: NullCompiler
) -> None:
    phone = NullPhone(lambda region: phone.die() if region == 3 else None, back=lambda: False)
    probes = whole_probes(network())
    with pytest.raises(DeviceError, match="does not come back"):
        opened(store, phone).measure(probes)
    assert len(store) == 3
    phone = NullPhone()
    assert len(opened(store, phone).measure(probes)) == len(probes)
    assert set(phone.timed) == set(range(len(probes) - 3))


@pytest.mark.parametrize("how", [lambda phone: phone.die(), lambda phone: phone.hang()])
def test_what_takes_the_phone_away_runs_last_and_alone_and_then_no_more(
    store: RecordStore, compiler: NullCompiler, how: Callable[[NullPhone], None]
) -> None:
    """A kernel that reboots the phone, or hangs it for good: the user starts it again, and the command once more."""
    probes = whole_probes(network())

    def process_that_ends(fatal: int) -> int:
        """How many records there are then; the phone goes away with what would be record number ``fatal``."""

        def fail(region: int) -> None:
            with RecordStore(store.path) as seen:
                if len(seen) == fatal:
                    how(phone)

        phone = NullPhone(fail, back=lambda: False)
        pid = os.fork()
        if not pid:
            with RecordStore(store.path) as own, contextlib.suppress(DeviceError):
                opened(own, phone).measure(probes)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        return len(store)

    last = len(probes) - 1
    assert process_that_ends(3) == 3
    assert process_that_ends(last) == last, "it is no more the fourth"
    records = opened(store, NullPhone()).measure(probes)
    assert [r.ok for r in records] == [True] * last + [False]
    assert (records[-1].workload, records[-1].processor) == (probes[3].key, probes[3].processor)
    assert "2 processes died" in records[-1].error
    assert not journal.folder_of(store.path).exists()


def test_a_session_that_ends_once_loses_nothing(store: RecordStore, compiler: NullCompiler) -> None:
    """Somebody killed the phone's process; the candidate in flight is innocent."""
    deaths = iter([True])
    phone = NullPhone(lambda region: phone.die() if region == 3 and next(deaths, False) else None)
    measurer = opened(store, phone)
    probes = whole_probes(measurer.graph)
    records = measurer.measure(probes)
    assert [r.median_ms for r in records] == [0.5 + i for i in range(len(probes))]
    assert phone.opened == 2
    assert len(store) == len(probes)


def test_a_candidate_that_kills_the_phone_twice_is_recorded_and_left_alone(
    store: RecordStore, compiler: NullCompiler
) -> None:
    phone = NullPhone(lambda region: phone.die() if region == 3 else None)
    measurer = opened(store, phone)
    probes = whole_probes(measurer.graph)
    records = measurer.measure(probes)
    assert [r.ok for r in records] == [i != 3 for i in range(len(probes))]
    assert "ended 2 times while it ran" in records[3].error
    assert phone.opened == 3
    opened(store, phone).measure(probes)
    assert phone.opened == 3, "a candidate that kills was tried again"


def test_a_candidate_that_hangs_is_cut_off_and_recorded(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone(lambda region: phone.hang() if region == 1 else None)
    measurer = opened(store, phone)
    probes = whole_probes(measurer.graph)
    records = measurer.measure(probes, predicted_ms=[1.0] * len(probes))
    assert [r.ok for r in records] == [i != 1 for i in range(len(probes))]
    assert "not done within 0.6 s" in records[1].error
    assert phone.opened == 2


def test_a_library_that_the_phone_does_not_take_is_halved(store: RecordStore, compiler: NullCompiler) -> None:
    poison: set[Path] = set()

    def load(path: Path) -> None:
        # The first library, then whichever half of it a bad candidate would be in: the first of two each time.
        if path in poison or len(poison) < 3:
            poison.add(path)
            raise tvm.error.TVMError("Stack trace:\nCL_BUILD_PROGRAM_FAILURE")

    phone = NullPhone(load=load)
    measurer = opened(store, phone)
    probes = whole_probes(measurer.graph)
    records = measurer.measure(probes)
    assert len(records) == len(probes)
    assert all(r.ok for r in records)
    assert phone.opened == 1


@pytest.mark.parametrize("end", ["die", "hang"])
def test_a_library_that_kills_or_hangs_the_phone_when_loaded(
    store: RecordStore, compiler: NullCompiler, end: str
) -> None:
    phone = NullPhone(load=lambda path: getattr(phone, end)())
    measurer = opened(store, phone, graph=network(1))
    probes = whole_probes(measurer.graph)
    assert len(probes) == 2
    assert not any(r.ok for r in measurer.measure(probes))
    phone.load = lambda path: None
    records = measurer.measure(probes, retry_failed=True)
    assert all(r.ok for r in records)


def test_a_slow_phone_cools_down_and_what_it_did_meanwhile_is_measured_again(
    store: RecordStore, compiler: NullCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The null phone's clock falls to half after the sixth candidate, and recovers after three seconds of rest."""
    rested = 0.0

    def sleep(seconds: float) -> None:
        nonlocal rested
        rested += seconds

    monkeypatch.setattr(worker.time, "sleep", sleep)
    words: list[str] = []
    phone = NullPhone(speed=lambda: 0.5 if len(set(phone.timed)) > 6 and rested < 3.0 else 1.0)
    settings = Settings(baseline_every=4)
    measurer = opened(store, phone, settings=settings, log=words.append)
    probes = whole_probes(measurer.graph)
    records = measurer.measure(probes)
    assert [r.median_ms for r in records] == [0.5 + i for i in range(len(probes))]
    assert rested >= 3.0
    assert len(store) > len(probes), "nothing was measured again"
    assert any("drift" in text for text in words)
    newest = measurer.newest_records()
    assert [newest[r.workload, r.processor] for r in records] == records


def test_a_session_ends_with_how_often_the_phone_slowed_down(store: RecordStore, compiler: NullCompiler) -> None:
    words: list[str] = []
    phone = NullPhone(speed=lambda: 0.5 if len(set(phone.timed)) % 2 else 1.0)
    measurer = opened(store, phone, settings=Settings(baseline_every=1, cool_s=0.0), log=words.append)
    measurer.measure(whole_probes(measurer.graph))
    before = len([text for text in words if "speed" in text])
    measurer.tell_drift()
    assert before <= 4 and "while measuring, the phone" in words[-1]


def test_a_look_at_the_baseline_that_hangs_costs_no_candidate(store: RecordStore, compiler: NullCompiler) -> None:
    """It holds the session: who came next would hang behind it, and be recorded for that."""
    looks = iter([False, False, True])
    phone = NullPhone(sampled=lambda ms: phone.hang() if ms == worker.BASELINE_MS and next(looks, False) else None)
    words: list[str] = []
    settings = Settings(baseline_every=4, first_s=0.3, floor_s=0.3, load_s=0.3)
    measurer = opened(store, phone, settings=settings, log=words.append)
    records = measurer.measure(whole_probes(measurer.graph))
    assert all(r.ok for r in records) and phone.opened == 2
    assert any("no alarm for drift" in text for text in words)


def test_a_baseline_that_kills_the_phone_again_is_given_up(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone(sampled=lambda ms: phone.die() if ms == worker.BASELINE_MS else None)
    words: list[str] = []
    measurer = opened(store, phone, settings=Settings(baseline_every=4), log=words.append)
    records = measurer.measure(whole_probes(measurer.graph))
    assert all(r.ok for r in records) and phone.opened == 3
    assert any("no alarm for drift: the phone's session ended 2 times" in text for text in words)


def test_what_failed_before_is_no_baseline(store: RecordStore, compiler: NullCompiler) -> None:
    measurer = opened(store, NullPhone(), settings=Settings(baseline_every=4))
    probes = whole_probes(measurer.graph)
    known = baseline_probes(measurer.graph)
    store.add([msgspec.structs.replace(bad, times_ms=(), error="it fails") for bad in measurer.measure(known)])
    measurer.measure([probe for probe in probes if probe not in known])
    assert compiler.batches[-1] == len(probes) - len(known), "it was built with the others"


def left_by_a_killed_client(store: RecordStore, measurer: Measurer, index: int, deaths: int = 0) -> None:
    """A journal as a process leaves it that was killed while the probe ran."""
    probe = whole_probes(measurer.graph)[index]
    script = f"""
from pathlib import Path
from typing import Any
from tvm_codl.measure.journal import Entry, Journal
Journal(Path({str(store.path)!r})).enter(
    Entry({probe.key!r}, {probe.processor!r}, {measurer.context.device!r}, {measurer.context.tools.kernel_id!r}, {deaths}))
import os; os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", script], env=os.environ, check=False).returncode == -9
    assert journal.folder_of(store.path).exists()


def test_a_suspect_of_a_killed_client_runs_last_and_alone(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    measurer = opened(store, phone)
    probes = whole_probes(measurer.graph)
    left_by_a_killed_client(store, measurer, 2)
    records = measurer.measure(probes)
    assert all(r.ok for r in records)
    assert [r.workload for r in store][-1] == probes[2].key
    assert compiler.batches == [len(probes) - 1, 1]
    assert not journal.folder_of(store.path).exists()


def test_a_suspect_with_which_two_clients_died_is_not_run(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    measurer = opened(store, phone)
    probes = whole_probes(measurer.graph)
    left_by_a_killed_client(store, measurer, 2, deaths=1)
    records = measurer.measure(probes)
    assert [r.ok for r in records] == [i != 2 for i in range(len(probes))]
    assert records[2].error == "2 processes died while they measured it"
    assert not journal.folder_of(store.path).exists()


def test_a_client_killed_right_after_it_stored_a_record_leaves_no_suspect(
    store: RecordStore, compiler: NullCompiler
) -> None:
    phone = NullPhone()
    measurer = opened(store, phone)
    probes = whole_probes(measurer.graph)
    measurer.measure(probes[:3])
    left_by_a_killed_client(store, measurer, 2)
    measurer.measure(probes)
    assert len(store) == len(probes)
    assert not journal.folder_of(store.path).exists()


def test_batches_are_bounded(store: RecordStore, compiler: NullCompiler) -> None:
    measurer = opened(store, NullPhone(), graph=network(60))
    probes = whole_probes(measurer.graph)
    assert len(measurer.measure(probes)) == len(probes) == 120
    assert max(compiler.batches) <= measuring.BATCH
    assert sum(compiler.batches) == len(probes)
