"""Settings: what a plan chooses besides where each operator runs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

#: Linux's largest core number and one (CPU_SETSIZE), and so the most threads that have a core each.
MOST_CORES = 1024

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Threads = Annotated[int, msgspec.Meta(ge=0, le=MOST_CORES)]
Core = Annotated[int, msgspec.Meta(ge=0, lt=MOST_CORES)]


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a network runs; the defaults are how it runs where nothing is said.

    ``flush_every``: after so many commands for the GPU the queue is flushed; 0 flushes only where a run has enqueued all
    that it may for now, which every period does as well.  ``cpu_threads``: 0 is as many as TVM takes by itself, or as
    ``cpu_cores`` has cores.  ``cpu_cores``: the numbers of the cores that the CPU's threads may use, rising; empty: those
    that the phone's server has.  ``gpu_float``: the type in which the GPU computes and keeps its weights.
    ``gpu_memory``: what the GPU reads the float32 weights of convolutions and dense layers from; in images they are held once
    more, for each plan of a library.

    Raises :class:`ValueError` for a value that cannot be meant, :class:`msgspec.ValidationError` where it is read.
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
        """What differs from the defaults, as a person says it; ``default`` if nothing does."""
        said = {f: getattr(self, f) for f in self.__struct_fields__ if getattr(self, f) != getattr(DEFAULT, f)}
        if "cpu_cores" in said:
            said["cpu_cores"] = "+".join(map(str, self.cpu_cores))
        return " ".join(f"{name}={value}" for name, value in said.items()) or "default"


DEFAULT = Settings()
