"""Known networks: the operators of a network that was imported before, by the content of its file.

Importing takes seconds, and a question about a plan needs the operators only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from tvm_codl.frontend.located import locate
from tvm_codl.graph.opgraph import OpGraph, Shape
from tvm_codl.paths import cache_dir
from tvm_codl.relay.prepared import Prepared
from tvm_codl.sources import code_digest, tvm_version


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
        if found.path.is_file():  # else importing it says what is wrong
            with found.path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
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
        kept = _Kept(prepared.name, prepared.graph)
        text = msgspec.json.encode(kept)
        if self._file.exists() or msgspec.json.decode(text, type=_Kept) != kept:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(text)  # half a file is none: read() decodes it
