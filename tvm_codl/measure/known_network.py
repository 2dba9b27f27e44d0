"""Known networks: the operators of a network that was imported before and whose file was not touched since.

Importing takes seconds, and a question about a plan needs the operators only.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping

import msgspec

from tvm_codl.frontend.located import locate
from tvm_codl.graph.opgraph import OpGraph, Shape
from tvm_codl.paths import cache_dir
from tvm_codl.relay.prepared import Prepared
from tvm_codl.sources import code_digest, tvm_version

#: A file that changed later may change again with the same time stamp.
SETTLED_S = 2.0


class _Kept(msgspec.Struct, frozen=True):
    name: str
    graph: OpGraph


class KnownNetwork:
    """Where the operators of ``source`` are kept; ``shapes`` as for :func:`~tvm_codl.frontend.load.load_model`, which
    says what is raised for a source that is none."""

    def __init__(self, source: str, shapes: Mapping[str, Shape]) -> None:
        found = locate(source, shapes)
        digest = hashlib.sha256(f"{tvm_version()}|{found.name}|{sorted(found.shapes.items())}".encode())
        digest.update(code_digest("frontend", "relay", "graph"))
        self._changed = 0.0
        if found.path.is_file():  # else importing it says what is wrong
            # Reading half a gigabyte of weights takes longer than what is asked for.
            stat = found.path.stat()
            self._changed = max(stat.st_mtime, stat.st_ctime)
            which = (found.path.resolve(), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
            digest.update(str(which).encode())
        self._file = cache_dir() / "networks" / f"{digest.hexdigest()[:32]}.json"

    def read(self) -> tuple[str, OpGraph] | None:
        """Its name and its operators; None for one that is not known."""
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=_Kept)
        except (OSError, msgspec.DecodeError):
            return None
        return kept.name, kept.graph

    def keep(self, prepared: Prepared) -> None:
        """Keeps the operators of a network whose import was checked."""
        if time.time() - self._changed < SETTLED_S:
            return
        kept = _Kept(prepared.name, prepared.graph)
        text = msgspec.json.encode(kept)
        if self._file.exists() or msgspec.json.decode(text, type=_Kept) != kept:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(text)  # half a file is none: read() decodes it
