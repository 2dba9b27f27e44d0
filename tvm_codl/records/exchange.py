"""Records out of a store and into one: files of AutoTVM's lines or CSV, and other stores.

Importing is idempotent.  A record is known by all of its content, the times and the moment of the measurement too
(:meth:`RecordStore.add_new`): the same file or store a second time, or overlapping ones, add nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.records import autotvm, spreadsheet
from tvm_codl.records.autotvm import Profile
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Record
from tvm_codl.records.selection import ALL, Selection
from tvm_codl.records.store import RecordStore
from tvm_codl.records.workload import Structure

Format = Literal["autotvm", "csv"]
#: Bad lines that a report names; it counts all of them.
_NAMED = 20


class Amount(msgspec.Struct, frozen=True):
    """How many of each there were, or are new."""

    pieces: int = 0
    kernels: int = 0
    profiles: int = 0
    plans: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.pieces + other.pieces,
            self.kernels + other.kernels,
            self.profiles + other.profiles,
            self.plans + other.plans,
        )


class Imported(msgspec.Struct, frozen=True):
    """``read`` are the good lines, ``new`` those that the store did not have; ``bad`` counts the lines that were skipped
    and ``reasons`` names the first of them as ``file:line: why``."""

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
    """Writes what is selected to a file (whole or not at all), or to stdout where ``path`` is None.

    AutoTVM's lines hold pieces, kernel records, the profiles that both name, and whole plans; CSV holds pieces alone.
    Raises :class:`UserError` where the file cannot be written.
    """
    kind = format or format_of(path)
    lines = _csv_lines(store, selection) if kind == "csv" else _autotvm_lines(store, selection)
    if path is None:
        return _written(lines, sys.stdout.write)
    if path.exists() and not path.is_file():  # a pipe or a device is written into and not replaced
        try:
            with open(path, "w", encoding="utf-8", newline="") as file:
                return _written(lines, file.write)
        except OSError as error:
            raise UserError(f"{path} cannot be written", str(error), "tvm-codl records export -o FILE") from error
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(partial.unlink, missing_ok=True)
            with open(partial, "w", encoding="utf-8", newline="") as file:
                amount = _written(lines, file.write)
            os.replace(partial, path)
            return amount
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
    found: tuple[list[Record], list[KernelRecord], list[PlanRecord], list[Profile]] = ([], [], [], [])
    for number, value in _entries(path, format or format_of(path)):
        if isinstance(value, ValueError):
            bad += 1
            if not skip_bad:
                raise UserError(
                    f"{path}:{number} is no record", str(value)[:500], "mend the line, or leave it out with --skip-bad"
                )
            if len(reasons) < _NAMED:
                reasons.append(f"{path}:{number}: {str(value)[:200]}")
        elif isinstance(value, Record):
            found[0].append(value)
        elif isinstance(value, KernelRecord):
            found[1].append(value)
        elif isinstance(value, PlanRecord):
            found[2].append(value)
        else:
            found[3].append(value)
    new = _keep(store, *found)
    read = Amount(len(found[0]), len(found[1]), len(found[3]), len(found[2]))
    return Imported(read, new, bad, tuple(reasons))


def merge(sources: Sequence[Path], into: RecordStore) -> Amount:
    """Adds to a store what other stores have and it does not; returns how much that was.

    A source of an older schema version is brought up to date.  Raises :class:`UserError` for a source that is no store.
    """
    total = Amount()
    for path in sources:
        with opened(path) as source:
            profiles = [Profile(text) for text in source.profiles().values()]
            new = _keep(into, source.query(), source.kernels(), source.plans(), profiles)
            total = total + new
    return total


def opened(path: Path) -> RecordStore:
    """The store in an existing file.  Raises :class:`UserError` where there is none."""
    if not path.is_file():
        raise UserError(
            f"there is no record store {path}",
            "no such file",
            "tvm-codl measure MODEL, or tvm-codl records import FILE",
        )
    return RecordStore(path)


def _keep(
    store: RecordStore,
    pieces: Iterator[Record] | Sequence[Record],
    kernels: Iterator[KernelRecord] | Sequence[KernelRecord],
    plans: Iterator[PlanRecord] | Sequence[PlanRecord],
    profiles: Sequence[Profile],
) -> Amount:
    known = len(store.profiles())
    for profile in profiles:  # first, so that no record ever names a profile that is not there
        store.keep_profile(profile.json)
    profiles_new = len(store.profiles()) - known
    return Amount(store.add_new(pieces), store.add_new_kernels(kernels), profiles_new, store.add_new_plans(plans))


Entry = Record | KernelRecord | PlanRecord | Profile | ValueError


def _entries(path: Path, format: Format) -> Iterator[tuple[int, Entry]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            if format == "csv":
                yield from ((number, _checked(value)) for number, value in spreadsheet.rows(file))
            else:
                yield from _autotvm_entries(file)
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


def _autotvm_entries(lines: Iterator[str]) -> Iterator[tuple[int, Entry]]:
    for number, line in enumerate(lines, 1):
        try:
            value = autotvm.read_line(line)
        except ValueError as error:
            yield number, error
        else:
            if value is not None:
                yield number, _checked(value)


def _checked(value: Entry) -> Entry:
    """A record of a workload that is none would stay in the store for good."""
    if isinstance(value, Record):
        try:
            msgspec.json.decode(value.workload, type=Structure)
        except (ValueError, RecursionError) as error:
            return ValueError(f"the workload is none: {error}")
    return value


def _csv_lines(store: RecordStore, selection: Selection) -> Iterator[tuple[str, Amount]]:
    yield spreadsheet.header(), Amount()
    for record in selection.records(store):
        yield spreadsheet.record_row(record), Amount(pieces=1)


def _autotvm_lines(store: RecordStore, selection: Selection) -> Iterator[tuple[str, Amount]]:
    named: dict[str, None] = {"": None}

    def profile(digest: str) -> Iterator[tuple[str, Amount]]:
        if digest not in named:
            named[digest] = None
            text = store.profile(digest)
            if text is not None:
                yield autotvm.profile_line(text) + "\n", Amount(profiles=1)

    for record in selection.records(store):
        yield from profile(record.profile)
        yield autotvm.piece_line(record) + "\n", Amount(pieces=1)
    for kernel in selection.kernels(store):
        yield from profile(kernel.profile)
        yield autotvm.kernel_line(kernel) + "\n", Amount(kernels=1)
    for plan in selection.plans(store):
        yield autotvm.plan_line(plan) + "\n", Amount(plans=1)


def _written(lines: Iterator[tuple[str, Amount]], write: Callable[[str], object]) -> Amount:
    total = Amount()
    for text, amount in lines:
        write(text)
        total = total + amount
    return total
