"""Settings: a plan's choices besides the placements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tvm_codl.errors import UserError

#: Linux's CPU_SETSIZE: one more than the largest core number.
MOST_CORES = 1024

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Threads = Annotated[int, msgspec.Meta(ge=0, le=MOST_CORES)]
Core = Annotated[int, msgspec.Meta(ge=0, lt=MOST_CORES)]


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a network runs.

    ``flush_every``: the queue is flushed after so many GPU commands, and whenever a run has enqueued all that it may for
    now; 0: only then.  ``cpu_threads``: 0 is TVM's default, or one for each of ``cpu_cores``.  ``cpu_cores``: the cores
    that the CPU's threads may use, rising; empty: those of the phone's server.  ``gpu_float``: the type in which the GPU
    computes and keeps its weights.  ``gpu_memory``: where the GPU reads the float32 weights of convolutions and dense
    layers; images hold them once more for each plan of a library.

    Raises :class:`ValueError` for impossible values, :class:`msgspec.ValidationError` where they are read.
    """

    flush_every: Count = 0
    cpu_threads: Threads = 0
    cpu_cores: tuple[Core, ...] = ()
    gpu_float: Literal["float32", "float16"] = "float32"
    gpu_memory: Literal["buffer", "image"] = "buffer"

    def __post_init__(self) -> None:
        if any(a >= b for a, b in zip(self.cpu_cores, self.cpu_cores[1:], strict=False)):
            raise ValueError(f"cpu_cores must rise and name each core once, not {list(self.cpu_cores)}")
        if self.cpu_cores and self.cpu_threads > len(self.cpu_cores):
            raise ValueError(f"cpu_threads is {self.cpu_threads}, and cpu_cores has {len(self.cpu_cores)} cores")
        if self.gpu_float == "float16" and self.gpu_memory == "image":
            raise ValueError("gpu_float float16 reads buffers alone, not gpu_memory image")

    def words(self) -> str:
        """The values that differ from the defaults, for messages; ``default`` if none does."""
        changed = {f: getattr(self, f) for f in self.__struct_fields__ if getattr(self, f) != getattr(DEFAULT, f)}
        if "cpu_cores" in changed:
            changed["cpu_cores"] = "+".join(map(str, self.cpu_cores))
        return " ".join(f"{name}={value}" for name, value in changed.items()) or "default"


DEFAULT = Settings()


def parse_settings(text: str) -> Settings | None:
    """What ``--settings`` says: ``default``; ``auto`` (None: to be measured); else a JSON file.

    Raises :class:`UserError` where the file cannot be read or holds no settings.
    """
    if text == "auto":
        return None
    if text == "default":
        return DEFAULT
    path = Path(text)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except OSError as error:
        why, next = error.strerror or str(error), "--settings auto, default, or a JSON file"
        raise UserError(f"the settings {path} cannot be read", why, next) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fields = ", ".join(Settings.__struct_fields__)
        raise UserError(f"{path} holds no settings", str(error), f"a JSON object with any of {fields}") from error
