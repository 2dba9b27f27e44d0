"""Lines of JSON beside a record store, in files that only grow: a killed process loses at most the line it was writing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

Value = TypeVar("Value", bound=msgspec.Struct)


def file_beside(store: Path, what: str) -> Path:
    """``records.sharing.jsonl`` for ``records.sqlite`` and ``sharing``."""
    return store.with_name(f"{store.stem}.{what}.jsonl")


def append_line(path: Path, value: msgspec.Struct) -> None:
    line = msgspec.json.encode(value) + b"\n"
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            # A killed process may have left an unfinished line.
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)


def read_lines(path: Path, type: type[Value]) -> Iterator[Value]:
    """The newest first.  Lines of other versions are skipped; a file that does not exist has none."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in reversed(lines):
        try:
            yield msgspec.json.decode(line, type=type)
        except msgspec.DecodeError:
            continue
