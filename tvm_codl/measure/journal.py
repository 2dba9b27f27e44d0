"""Journal: the candidate that runs right now, on disk, so that it is known if this process dies with it.

A folder beside the record store holds one small file for each phone in use, with the candidate that it runs.  A file
whose process has ended without removing it names a suspect.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

import msgspec
import psutil


class Entry(msgspec.Struct, frozen=True):
    """A candidate in flight, by what makes its record unique; ``deaths`` counts the processes that died with it."""

    workload: str
    processor: str
    device: str
    build: str
    deaths: int = 0

    @property
    def identity(self) -> tuple[str, ...]:
        return self.workload, self.processor, self.device, self.build


class _Line(msgspec.Struct, frozen=True):
    pid: int
    started: float
    entry: Entry


class Journal:
    """One phone's file, in the folder of the store at ``store``.  Written only while a candidate runs."""

    def __init__(self, store: Path) -> None:
        self.folder = folder_of(store)
        self._path = self.folder / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        self._started = psutil.Process().create_time()

    def enter(self, entry: Entry) -> None:
        """Says that ``entry`` is about to run.  Returns when a kill of this process cannot lose that any more."""
        line = msgspec.json.encode(_Line(os.getpid(), self._started, entry))
        partial = self._path.with_suffix(".partial")
        while True:
            # Another phone's journal, ending, may remove the empty folder at any moment, within mkdir too.
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                self.folder.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(line)
                os.replace(partial, self._path)
                return

    def leave(self) -> None:
        """Nothing runs any more."""
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty, or not there
            self.folder.rmdir()


def folder_of(store: Path) -> Path:
    return store.with_name(store.name + ".running")


def suspects(store: Path) -> dict[tuple[str, ...], int]:
    """How often a process died with each candidate, by :attr:`Entry.identity`.  Files that are no journal are passed over."""
    deaths: dict[tuple[str, ...], int] = {}
    for _, entry in _left(store):
        deaths[entry.identity] = max(deaths.get(entry.identity, 0), entry.deaths + 1)
    return deaths


def acquit(store: Path, identity: tuple[str, ...]) -> None:
    """Forgets a suspect: it is measured, or recorded as the one that kills."""
    for path, entry in _left(store):
        if entry.identity == identity:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder_of(store).rmdir()


def _left(store: Path) -> list[tuple[Path, Entry]]:
    """The entries of processes that have ended."""
    left, folder = [], folder_of(store)
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:  # another phone's journal removes it, at any moment
        return []
    for path in (folder / name for name in names if name.endswith(".json")):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            line = msgspec.json.decode(path.read_bytes(), type=_Line)
            if not _runs(line):
                left.append((path, line.entry))
    return left


def _runs(line: _Line) -> bool:
    """Whether that very process still runs, and not another one with its number."""
    try:
        return abs(psutil.Process(line.pid).create_time() - line.started) < 1.0
    except psutil.NoSuchProcess:
        return False
