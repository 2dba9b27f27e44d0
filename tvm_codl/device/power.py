"""A phone's power draw in each state of its two processors, and files of it."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from tvm_codl.device.facts_file import read_facts

_NEXT = "write four lines, idle_w, cpu_w, gpu_w and both_w, each with the watts of the whole phone in that state"


class Power(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Watts of the whole phone: with both processors idle, with only the CPU or only the GPU busy, with both busy.

    No defaults: phones differ.  Raises :class:`ValueError` for a negative or infinite power, and where a busy processor
    draws less than an idle one.
    """

    idle_w: float
    cpu_w: float
    gpu_w: float
    both_w: float

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite watts >= 0, not {value}")
        for less, more in (("idle_w", "cpu_w"), ("idle_w", "gpu_w"), ("cpu_w", "both_w"), ("gpu_w", "both_w")):
            if getattr(self, less) > getattr(self, more):
                raise ValueError(f"{less} ({getattr(self, less)}) must not be above {more} ({getattr(self, more)})")


def read_power(path: str | Path) -> Power:
    """The power table in a YAML or JSON file.

    Raises :class:`UserError` with the file and the evidence for one that cannot be read or is not valid.
    """
    return read_facts(path, Power, _NEXT, strict=False)
