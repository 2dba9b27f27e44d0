"""What ran when a process died is known afterwards, and nothing else is."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec

from tvm_codl.measure.journal import Entry, Journal, acquit, folder_of, suspects

ENTRY = Entry("conv", "gpu", "pixel", "b1")


def die_with(store: Path, entry: Entry) -> None:
    pid = os.fork()
    if not pid:
        Journal(store).enter(entry)
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)


def test_nothing_is_suspect_that_ended_or_still_runs(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    assert suspects(store) == {}
    journal = Journal(store)
    journal.enter(ENTRY)
    assert suspects(store) == {}
    journal.leave()
    assert not folder_of(store).exists()


def test_deaths_add_up_and_an_acquittal_ends_them(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    die_with(store, ENTRY)
    assert suspects(store) == {ENTRY.identity: 1}
    die_with(store, msgspec.structs.replace(ENTRY, deaths=1))
    other = msgspec.structs.replace(ENTRY, processor="cpu")
    die_with(store, other)
    assert suspects(store) == {ENTRY.identity: 2, other.identity: 1}
    acquit(store, ENTRY.identity)
    assert suspects(store) == {other.identity: 1}
    acquit(store, other.identity)
    assert not folder_of(store).exists()


def test_a_process_number_that_was_given_again_does_not_hide_a_suspect(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    journal = Journal(store)
    journal._started -= 1000.0  # the process that wrote it had this number, long ago
    journal.enter(ENTRY)
    assert suspects(store) == {ENTRY.identity: 1}


def test_files_that_are_no_journal_are_passed_over(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    folder_of(store).mkdir()
    (folder_of(store) / "1-a.json").write_bytes(b'{"pid": 1')
    (folder_of(store) / "2-a.json").write_bytes(b"[]")
    assert suspects(store) == {}


def test_many_phones_come_and_go_at_once(tmp_path: Path) -> None:
    """One that ends removes the folder that another is about to write into."""
    store = tmp_path / "records.sqlite"
    errors: list[BaseException] = []

    def run() -> None:
        try:
            journal = Journal(store)
            for _ in range(200):
                journal.enter(ENTRY)
                journal.leave()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert not folder_of(store).exists()


def test_a_folder_that_comes_and_goes_holds_no_suspects(tmp_path: Path) -> None:
    """Other phones' journals make it, and remove it when they end."""
    store, done = tmp_path / "records.sqlite", threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            folder_of(store).mkdir()
            folder_of(store).rmdir()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        assert all(suspects(store) == {} for _ in range(5000))
    finally:
        done.set()
        thread.join()
