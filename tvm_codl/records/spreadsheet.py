"""Records of pieces as CSV: one row a record, lossless, and without cells that a spreadsheet takes for formulas.

The columns are the fields of a :class:`~tvm_codl.records.record.Record` and of its piece, side by side; ``times_ms`` is a JSON
list, and ``median_ms``, their median, is empty for a failure and not read back.

A text that begins with one of ``= + - @ '``, a tab or a carriage return gets an apostrophe before it; reading removes
it.  All texts are quoted.  CSV holds the digests of profiles, not the profiles.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

import msgspec

from tvm_codl.records.record import Record, flatten, nest

COLUMNS = (
    *("workload", "kind", "axis", "lo", "hi", "extent", "processor", "device", "build", "mode", "times_ms"),
    *("median_ms", "error", "error_no", "when", "profile", "schedule"),
)
#: Columns that a file may leave out.
OPTIONAL = frozenset(("median_ms", "mode", "error", "error_no", "profile", "schedule"))
_TEXTS = frozenset(COLUMNS) - {"lo", "hi", "extent", "times_ms", "median_ms", "error_no", "when"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
#: An opaque operator's key may exceed Python's limit of 128 KiB.
_LONGEST_CELL = 1 << 27


def header() -> str:
    return _line(COLUMNS)


def record_row(record: Record) -> str:
    """One row, with its end."""
    cells = flatten(record)
    cells["times_ms"] = msgspec.json.encode(record.times_ms).decode()
    cells["median_ms"] = record.median_ms if record.ok else ""
    for name in _TEXTS:
        if cells[name].startswith(_FORMULA):
            cells[name] = f"'{cells[name]}"
    return _line(cells[name] for name in COLUMNS)


def rows(lines: Iterable[str]) -> Iterator[tuple[int, Record | ValueError]]:
    """(number of the row's last line, its record or error); ``lines`` keep their ends.

    Raises :class:`ValueError` for a header that lacks a column or has an unknown one.
    """
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(lines, strict=True)
    try:
        names = _names(next(reader, []))
    except csv.Error as error:
        raise ValueError(f"no CSV: {error}") from error
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield reader.line_num, ValueError(str(error))
            continue
        if cells is None:
            return
        if cells:
            yield reader.line_num, _read(names, cells)


def _names(cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    missing = [name for name in COLUMNS if name not in names and name not in OPTIONAL]
    unknown = [name for name in names if name not in COLUMNS]
    if missing or unknown or len(set(names)) < len(names):
        raise ValueError(f"the header lacks {missing}, does not know {unknown}, or names a column twice")
    return names


def _read(names: list[str], cells: list[str]) -> Record | ValueError:
    if len(cells) != len(names):
        return ValueError(f"{len(cells)} cells under {len(names)} columns")
    fields: dict[str, object] = {
        name: cell.removeprefix("'") if name in _TEXTS else cell for name, cell in zip(names, cells, strict=True)
    }
    fields.pop("median_ms", None)
    try:
        fields["times_ms"] = msgspec.json.decode(str(fields["times_ms"]), type=tuple[float, ...])
        return msgspec.convert(nest(fields), Record, strict=False)
    except ValueError as error:
        return error


def _line(cells: Iterable[object]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerow(list(cells))
    return buffer.getvalue()
