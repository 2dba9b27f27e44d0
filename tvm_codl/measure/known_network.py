"""Known networks: what was read of a network that was imported before and whose file was not touched since.

Importing takes seconds.  A question about a plan needs the operators only; to run its library again takes sample inputs, and
the reference's answers to them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from tvm_codl.frontend.located import locate
from tvm_codl.graph.opgraph import OpGraph, Shape
from tvm_codl.paths import cache_dir
from tvm_codl.relay.prepared import Known, LatePrepared, Prepared
from tvm_codl.sources import code_digest, tvm_version

#: A file that changed later may change again with the same time stamp.
SETTLED_S = 2.0


class _Array(msgspec.Struct, frozen=True):
    dtype: str
    shape: Shape
    data: bytes

    @classmethod
    def of(cls, value: np.ndarray) -> _Array:
        return cls(str(value.dtype), value.shape, value.tobytes())

    def value(self) -> np.ndarray:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


class _Kept(msgspec.Struct, frozen=True):
    name: str
    graph: OpGraph
    digest: str
    samples: dict[str, _Array]
    answers: list[_Array]
    quanta: tuple[float, ...]

    def known(self) -> Known:
        samples = {name: array.value() for name, array in self.samples.items()}
        answers = [array.value() for array in self.answers]
        return Known(self.name, self.graph, self.digest, samples, answers, self.quanta)


class KnownNetwork:
    """Where what was read of ``source`` is kept; ``shapes`` as for :func:`~tvm_codl.frontend.load.load_model`, which
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
        self._file = cache_dir() / "networks" / f"{digest.hexdigest()[:32]}.msgpack"

    def read(self, load: Callable[[], Prepared]) -> Prepared | None:
        """The network, which ``load`` imports where more of it is asked for; None for one that is not known."""
        try:
            kept = msgspec.msgpack.decode(self._file.read_bytes(), type=_Kept).known()
        except (OSError, msgspec.DecodeError, ValueError, TypeError):
            return None
        return LatePrepared(kept, load)

    def keep(self, prepared: Prepared) -> None:
        """Keeps what was read of a network whose import was checked."""
        if time.time() - self._changed < SETTLED_S or self._file.exists():
            return
        samples = {name: _Array.of(value) for name, value in prepared.samples.items()}
        answers = [_Array.of(value) for value in prepared.answers]
        kept = _Kept(prepared.name, prepared.graph, prepared.digest, samples, answers, prepared.quanta)
        packed = msgspec.msgpack.encode(kept)
        if msgspec.msgpack.decode(packed, type=_Kept) != kept:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(packed)  # half a file is none: read() decodes it
