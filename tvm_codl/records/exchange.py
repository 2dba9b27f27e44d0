"""Records out of a store and into one: files of AutoTVM's lines or CSV, and other stores.

Importing is idempotent: a file or store that comes a second time, or overlaps another, adds only records that differ in
some field, times and moment included (:meth:`RecordStore.add_new`).
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from pathlib import Path
from typing import Any, Literal

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.records import autotvm, spreadsheet
from tvm_codl.records.autotvm import Entry, Profile
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Record
from tvm_codl.records.selection import ALL, Selection
from tvm_codl.records.store import RecordStore
from tvm_codl.records.workload import Structure

Format = Literal["autotvm", "csv"]
#: A line, and the field of :class:`Amount` that counts it.
Line = tuple[str, str]
#: Bad lines that a report names; it counts all of them.
_NAMED = 20


class Amount(msgspec.Struct, frozen=True):
    """How many of each there were, or are new."""

    pieces: int = 0
    kernels: int = 0
    profiles: int = 0
    plans: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


class Imported(msgspec.Struct, frozen=True):
    """``read`` counts the good lines, ``new`` those that the store did not have, ``bad`` the skipped ones; ``reasons``
    names the first of these as ``file:line: why``."""

    read: Amount
    new: Amount
    bad: int = 0
    reasons: tuple[str, ...] = ()


def format_of(path: Path | None) -> Format:
    """CSV for a name that ends in ``.csv``, else AutoTVM's lines."""
    return "csv" if path is not None and path.suffix.lower() == ".csv" else "autotvm"


def export_file(
    store: RecordStore, path: Path | None, format: Format | None = None, selection: Selection = ALL
) -> Amount:
    """Writes the selected records to a file (whole or not at all), or to stdout where ``path`` is None.

    AutoTVM's lines hold pieces, kernel records, the profiles that both name, and whole plans; CSV holds pieces alone.
    Raises :class:`UserError` where the file cannot be written.
    """
    lines = _csv_lines(store, selection) if (format or format_of(path)) == "csv" else _autotvm_lines(store, selection)
    if path is None:
        return _write(lines, sys.stdout.write)
    # A pipe or a device is written into and not replaced.
    target = path if path.exists() and not path.is_file() else path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            with open(target, "w", encoding="utf-8", newline="") as file:
                amount = _write(lines, file.write)
            if target != path:
                os.replace(target, path)
            return amount
        finally:
            if target != path:
                target.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written", str(error), "tvm-codl records export -o FILE, in a folder that can be written"
        ) from error


def import_file(store: RecordStore, path: Path, format: Format | None = None, skip_bad: bool = False) -> Imported:
    """Adds a file's records that the store does not have.

    Raises :class:`UserError`, and then adds nothing, for a bad line, unless ``skip_bad``, and for a file that cannot be
    read.
    """
    reasons: list[str] = []
    bad = 0
    entries: dict[type, list[Any]] = defaultdict(list)
    for number, entry in _read(path, format or format_of(path)):
        if not isinstance(entry, ValueError):
            entries[type(entry)].append(entry)
            continue
        bad += 1
        if not skip_bad:
            raise UserError(
                f"{path}:{number} is no record", str(entry)[:500], "mend the line, or leave it out with --skip-bad"
            )
        if len(reasons) < _NAMED:
            reasons.append(f"{path}:{number}: {str(entry)[:200]}")
    of_kinds = [entries[kind] for kind in (Record, KernelRecord, Profile, PlanRecord)]
    return Imported(Amount(*map(len, of_kinds)), _add_new(store, *of_kinds), bad, tuple(reasons))


def merge(sources: Sequence[Path], into: RecordStore) -> Amount:
    """Adds other stores' records that a store does not have; returns how many.

    Upgrades a source of an older schema version.  Raises :class:`UserError` for a source that is no store.
    """
    total = Amount()
    for path in sources:
        with open_store(path) as source:
            profiles = [Profile(text) for text in source.profiles().values()]
            total += _add_new(into, source.query(), source.kernels(), profiles, source.plans())
    return total


def open_store(path: Path) -> RecordStore:
    """The store in an existing file.  Raises :class:`UserError` where there is none."""
    if not path.is_file():
        raise UserError(
            f"there is no record store {path}",
            "no such file",
            "tvm-codl measure MODEL, or tvm-codl records import FILE",
        )
    return RecordStore(path)


def _add_new(
    store: RecordStore,
    pieces: Iterable[Record],
    kernels: Iterable[KernelRecord],
    profiles: Sequence[Profile],
    plans: Iterable[PlanRecord],
) -> Amount:
    before = len(store.profiles())
    for profile in profiles:  # first, so that no record ever names a profile that is not there
        store.keep_profile(profile.json)
    new = len(store.profiles()) - before
    return Amount(store.add_new(pieces), store.add_new(kernels), new, store.add_new(plans))


def _read(path: Path, format: Format) -> Iterator[tuple[int, Entry | ValueError]]:
    read = spreadsheet.rows if format == "csv" else autotvm.rows
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            for number, entry in read(file):
                yield number, _check_workload(entry)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} cannot be read",
            str(error),
            "name a text file of AutoTVM's lines or CSV, or merge a store: tvm-codl records merge STORE --into STORE",
        ) from error
    except ValueError as error:
        raise UserError(
            f"{path}:1 is no header of a table of records",
            str(error),
            "--format autotvm if it holds AutoTVM's lines; tvm-codl records export --format csv shows the header",
        ) from error


def _check_workload(entry: Entry | ValueError) -> Entry | ValueError:
    """Refuses a piece whose workload cannot be read: a store is append-only."""
    if isinstance(entry, Record):
        try:
            msgspec.json.decode(entry.workload, type=Structure)
        except (ValueError, RecursionError) as error:
            return ValueError(f"the workload cannot be read: {error}")
    return entry


def _csv_lines(store: RecordStore, selection: Selection) -> Iterator[Line]:
    yield spreadsheet.header(), ""
    for record in selection.records(store):
        yield spreadsheet.record_row(record), "pieces"


def _autotvm_lines(store: RecordStore, selection: Selection) -> Iterator[Line]:
    profiles = store.profiles()

    def describe(record: Record | KernelRecord) -> Iterator[Line]:
        """The line of a profile that no record named before."""
        if (text := profiles.pop(record.profile, None)) is not None:
            yield autotvm.profile_line(text) + "\n", "profiles"

    for record in selection.records(store):
        yield from describe(record)
        yield autotvm.piece_line(record) + "\n", "pieces"
    for kernel in selection.kernels(store):
        yield from describe(kernel)
        yield autotvm.kernel_line(kernel) + "\n", "kernels"
    for plan in selection.plans(store):
        yield autotvm.plan_line(plan) + "\n", "plans"


def _write(lines: Iterator[Line], write: Callable[[str], object]) -> Amount:
    counts: Counter[str] = Counter()
    for text, kind in lines:
        write(text)
        counts[kind] += 1
    del counts[""]
    return Amount(**counts)
