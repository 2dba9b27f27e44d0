"""What was compiled, kept by its digest: in memory for one library, or in a folder for all of them.

A file appears whole or not at all, so a killed process, a full disk and a second process do no harm.  A folder over its bound
loses what was not used for longest.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from tvm_codl.paths import cache_dir

T = TypeVar("T")

#: Bytes of a folder, and of one file in it.
MOST_BYTES, MOST_EACH = 4 << 30, 64 << 20
#: Files are counted once in so many that are written.
LOOK_EVERY = 200


class KernelCache:
    """``build_id`` is what the compiled code depends on beside its own digest; None keeps all in memory."""

    def __init__(self, build_id: str | None = None) -> None:
        self.folder = None if build_id is None else cache_dir() / "compiled" / build_id
        self._held: dict[str, bytes] = {}
        self._written = 0

    def get(self, name: str, type: type[T]) -> T | None:
        """None where it is not there, or not readable."""
        data = self._held.get(name)
        if self.folder is not None:
            path = self.folder / name[:2] / name
            with contextlib.suppress(OSError):
                data = path.read_bytes()
                os.utime(path)
        if data is None:
            return None
        try:
            return msgspec.msgpack.decode(data, type=type)
        except msgspec.DecodeError:
            return None

    def put(self, name: str, value: object) -> None:
        """Keeps a value; one that is too large is not kept.  Raises :class:`OSError` where the disk is full."""
        data = msgspec.msgpack.encode(value)
        if self.folder is None:
            self._held[name] = data
            return
        if len(data) > MOST_EACH:
            return
        path = self.folder / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        number, partial = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
        self._written += 1
        if self._written % LOOK_EVERY == 0:
            trim(self.folder.parent)


def files_of(folder: Path) -> list[tuple[float, int, Path]]:
    """(time of the last use in s, bytes, path) of each file below a folder, the oldest first."""
    found = []
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # another process may remove it meanwhile
                state = (Path(root) / name).stat()
                found.append((state.st_mtime, state.st_size, Path(root) / name))
    return sorted(found)


def trim(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Removes the files that were not used for longest, until the rest is within three quarters of the bound."""
    files = files_of(folder)
    total = sum(size for _, size, _ in files)
    if total <= most_bytes:
        return
    for _, size, path in files:
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
        if total <= most_bytes * 3 // 4:
            return
