"""Records of pieces as CSV: one row a record, nothing lost, and nothing that a spreadsheet takes for a formula.

========== =============================================================================================
column     meaning
========== =============================================================================================
workload   canonical key of the piece, JSON text (:mod:`tvm_codl.records.workload`)
kind       kind of operator: conv2d, max_pool2d, ...
axis       output axis that is cut: height, channels, ...; empty for a whole operator
lo, hi     units ``[lo, hi)`` along the axis
extent     units of the axis in the whole operator
processor  cpu or gpu
device     name of the phone
build      digest of the compiler and schedules that made the kernel
mode       alone, or shared: the other processor was busy
times_ms   JSON list of milliseconds, one mean for each repeat; empty list for a failure
median_ms  median of times_ms, empty for a failure; for the eye, not read back
error      why there is no time
error_no   AutoTVM's number of the error (:class:`~tvm_codl.records.record.ErrorNo`)
when       Unix time in seconds
profile    digest of the device's profile
schedule   configuration of the kernel, JSON text
========== =============================================================================================

A text that begins with one of ``= + - @ '``, a tab or a carriage return has an apostrophe put before it, which reading
takes away.  All texts are quoted.  Profiles themselves do not go into CSV, their digests do.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tvm_codl.records.record import Piece, Record

COLUMNS = (
    *("workload", "kind", "axis", "lo", "hi", "extent", "processor", "device", "build", "mode", "times_ms"),
    *("median_ms", "error", "error_no", "when", "profile", "schedule"),
)
#: Columns that a file may leave out.
OPTIONAL = frozenset(("median_ms", "mode", "error", "error_no", "profile", "schedule"))
_TEXTS = frozenset(COLUMNS) - {"lo", "hi", "extent", "times_ms", "median_ms", "error_no", "when"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
#: An opaque operator's key may be longer than Python's limit of 128 KiB.
_LONGEST_CELL = 1 << 27


def header() -> str:
    return _line(COLUMNS)


def record_row(record: Record) -> str:
    """One row, with its end."""
    piece = record.piece
    return _line(
        (
            *map(_safe, (record.workload, piece.kind, piece.axis)),
            *(piece.lo, piece.hi, piece.extent),
            *map(_safe, (record.processor, record.device, record.build, record.mode)),
            msgspec.json.encode(record.times_ms).decode(),
            record.median_ms if record.ok else "",
            _safe(record.error),
            *(record.error_no, record.when),
            *map(_safe, (record.profile, record.schedule)),
        )
    )


def rows(lines: Iterable[str]) -> Iterator[tuple[int, Record | ValueError]]:
    """(number of the row's last line, the record or what is wrong with it); ``lines`` keep their ends.

    Raises :class:`ValueError` for a header that lacks a column or has an unknown one.
    """
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(lines, strict=True)
    names: list[str] | None = None
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            if names is None:
                raise ValueError(f"no CSV: {error}") from error
            yield reader.line_num, ValueError(str(error))
            continue
        if names is None:
            names = _names(cells)
        elif cells:
            yield reader.line_num, _read(names, cells)
    if names is None:
        raise ValueError("no header")


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
    try:
        return _record(dict(zip(names, cells, strict=True)))
    except ValueError as error:
        return error


def _record(cells: dict[str, str]) -> Record:
    fields: dict[str, Any] = {name: _plain(cell) if name in _TEXTS else cell for name, cell in cells.items()}
    fields.pop("median_ms", None)
    piece = {name: fields.pop(name) for name in ("kind", "axis", "lo", "hi", "extent")}
    times = msgspec.json.decode(fields["times_ms"], type=tuple[float, ...])
    return msgspec.convert(
        fields | {"times_ms": times, "piece": msgspec.convert(piece, Piece, strict=False)}, Record, strict=False
    )


def _line(cells: Iterable[object]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerow(list(cells))
    return buffer.getvalue()


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _plain(text: str) -> str:
    return text.removeprefix("'")
