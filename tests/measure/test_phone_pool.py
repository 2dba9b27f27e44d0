"""Several phones that are none: all work, none's loss costs more than the candidate in flight, and none is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec
import pytest
import tvm

from tests.measure.null_phone import PROFILE, NullCompiler, NullPhone, network, null_measurer
from tvm_codl.device.spec import Tracker
from tvm_codl.errors import DeviceError
from tvm_codl.measure import journal
from tvm_codl.measure import phone_pool as pools
from tvm_codl.measure.measurer import Measurer
from tvm_codl.measure.phone_pool import PhonePool, connect_pool
from tvm_codl.measure.probe import whole_probes
from tvm_codl.measure.settings import Settings
from tvm_codl.records.store import RecordStore

PLAIN = Settings(baseline_every=1000, patience_s=0.5, first_s=5.0)


class NullShelf:
    """Hands out these phones, one after the other; None stands for "nothing free just now"."""

    def __init__(self, *phones: NullPhone | None) -> None:
        self.phones = list(phones)

    def take(self) -> NullPhone | None:
        return self.phones.pop(0) if self.phones else None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pools, "LOOK_S", 0.02)
    monkeypatch.setattr(pools, "SLICE", 3)
    before = threading.active_count()
    yield
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon:
            thread.join(5.0)
    assert threading.active_count() <= before


def opened(store: RecordStore, pool: PhonePool, settings: Settings = PLAIN) -> Measurer:
    return null_measurer(store, pool, settings, graph=network(12))


def together(count: int) -> list[NullPhone]:
    """Phones none of which goes on before all have started: one thread alone would never end."""
    barrier = threading.Barrier(count)
    started: set[int] = set()

    def phone(number: int) -> NullPhone:
        def fail(region: int) -> None:
            if number not in started:
                started.add(number)
                barrier.wait(20.0)

        return NullPhone(fail)

    return [phone(i) for i in range(count)]


def check(store: RecordStore, measurer: Measurer) -> None:
    probes = whole_probes(measurer.graph)
    records = measurer.measure(probes)
    assert [(r.workload, r.processor) for r in records] == [(p.key, p.processor) for p in probes]
    assert all(r.ok for r in records), [r.error for r in records]
    # Each time is that of the probe's own region, whichever phone took it.
    assert [r.median_ms for r in records] == [0.5 + i for i in range(len(probes))]
    assert len(store) == len(probes)
    assert not journal.folder_of(store.path).exists()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_all_phones_work_at_the_same_time(store: RecordStore, compiler: NullCompiler, count: int) -> None:
    phones = together(count)
    pool = PhonePool(NullShelf(*phones))
    assert pool.profile == PROFILE
    check(store, opened(store, pool))
    assert all(phone.timed for phone in phones)
    assert all(len(set(phone.loaded)) == len(phone.loaded) for phone in phones), "a library was sent twice to a phone"
    pool.close()
    assert not any(phone.alive() for phone in phones)


def test_no_more_phones_than_wanted(store: RecordStore, compiler: NullCompiler) -> None:
    shelf = NullShelf(*together(1), NullPhone())
    check(store, opened(store, PhonePool(shelf, most=1)))
    assert len(shelf.phones) == 1


def test_a_phone_that_disappears_loses_only_the_candidate_in_flight(store: RecordStore, compiler: NullCompiler) -> None:
    first, second = together(2)
    dying = first.fail

    def fail(region: int) -> None:
        dying(region)
        if len(first.timed) >= 2:
            first.die()

    first.fail, first.back = fail, lambda: False
    pool = PhonePool(NullShelf(first, second))
    check(store, opened(store, pool))
    assert pool.phones == [second]


def test_a_phone_that_comes_later_is_taken_in(store: RecordStore, compiler: NullCompiler) -> None:
    """The first phone waits in the middle of its first candidate until the other has done something."""
    late = NullPhone()
    first = NullPhone(lambda region: None if late_started.wait(20.0) else first.die())
    late_started = threading.Event()
    late.fail = lambda region: late_started.set()
    pool = PhonePool(NullShelf(first, None, None, late))
    assert pool.phones == [first]
    check(store, opened(store, pool))
    assert late.timed


def test_when_all_are_gone_the_session_waits_and_goes_on_with_the_next(
    store: RecordStore, compiler: NullCompiler
) -> None:
    first = NullPhone(lambda region: first.die() if len(first.timed) >= 2 else None, back=lambda: False)
    second = NullPhone()
    pool = PhonePool(NullShelf(first, None, None, None, second))
    check(store, opened(store, pool))


def test_when_all_are_gone_for_good_it_says_so_and_keeps_what_is_finished(
    store: RecordStore, compiler: NullCompiler
) -> None:
    phone = NullPhone(lambda region: phone.die() if len(phone.timed) >= 2 else None, back=lambda: False)
    measurer = opened(store, PhonePool(NullShelf(phone)))
    with pytest.raises(DeviceError, match="all phones are gone") as raised:
        measurer.measure(whole_probes(measurer.graph))
    assert "tvm-codl serve --tracker" in raised.value.next
    finished = len(store)
    assert finished == 1  # each candidate is asked for twice: its first run, then its samples
    measurer = opened(store, PhonePool(NullShelf(NullPhone())))
    assert len(measurer.measure(whole_probes(measurer.graph))) == len(store) == 24


def test_a_candidate_with_which_two_phones_disappear_is_given_up(store: RecordStore, compiler: NullCompiler) -> None:
    def killer() -> NullPhone:
        phone = NullPhone(lambda region: phone.die() if region == 4 else None, back=lambda: False)
        return phone

    measurer = opened(store, PhonePool(NullShelf(killer(), killer(), NullPhone(lambda region: None))))
    records = measurer.measure(whole_probes(measurer.graph))
    failed = [r for r in records if not r.ok]
    assert len(records) == 24
    assert [r.workload for r in failed] in ([], [records[4].workload])
    assert all("went away 2 times" in r.error for r in failed)


def test_a_phone_of_another_kind_is_not_mixed_in(store: RecordStore, compiler: NullCompiler) -> None:
    stranger = NullPhone(profile=msgspec.structs.replace(PROFILE, name="another phone"))
    pool = PhonePool(NullShelf(NullPhone(), stranger, NullPhone()))
    assert len(pool.phones) == 1
    assert not stranger.alive()
    check(store, opened(store, pool))


def test_a_phone_that_goes_away_while_it_is_asked_for_something(monkeypatch: pytest.MonkeyPatch) -> None:
    phone = NullPhone()
    monkeypatch.setattr(pools, "TrackerPhones", lambda place, timeout_s, soc: NullShelf(phone))
    with (
        pytest.raises(DeviceError, match="tracker here:9190, key pixel went away") as error,
        connect_pool(Tracker("here", 9190, "pixel")) as pool,
    ):
        pool.die()
    assert "Socket reset by peer" in str(error.value)
    assert not pool.alive()


def test_an_error_that_no_phone_is_to_blame_for_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "TrackerPhones", lambda place, timeout_s, soc: NullShelf(NullPhone(), NullPhone()))
    with pytest.raises(tvm.error.TVMError, match="of ours"), connect_pool(Tracker("here", 9190, "pixel")) as pool:
        assert pool.alive() and len(pool.phones) == 2
        raise tvm.error.TVMError("of ours")


def test_nobody_there() -> None:
    with pytest.raises(DeviceError, match="no phone of this key is free"):
        PhonePool(NullShelf())


def test_an_interrupted_session_leaves_no_thread_behind(store: RecordStore, compiler: NullCompiler) -> None:
    """A phone that hangs is cut off, so that its thread ends; the fixture counts."""
    hanging = NullPhone(lambda region: hanging.hang())
    pool = PhonePool(NullShelf(NullPhone(), hanging))
    measurer = opened(store, pool)
    stored = store.add

    def interrupted(records: object) -> int:
        stored(records)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    store.add = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        measurer.measure(whole_probes(measurer.graph))
    assert len(store) == 1
