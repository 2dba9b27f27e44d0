"""What a built library says of itself, and the memory that it takes."""

from __future__ import annotations

from typing import Any

import msgspec


class PortInfo(msgspec.Struct, frozen=True):
    """A network input or output: the user's shape, and how an output lies in the library's memory.

    ``order`` are the logical axes in memory order; ``crop`` is (axis, lo, hi) of the stored tensor, or empty.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    order: tuple[int, ...] = ()
    crop: tuple[int, ...] = ()


class RegionInfo(msgspec.Struct, frozen=True):
    """One region: its processor, and the operators (by id) that it holds."""

    name: str
    processor: str
    operators: str


class PlanInfo(msgspec.Struct, frozen=True):
    """One of several plans: ``state`` is what of the phone it is for (calm, cpu busy, gpu throttled), ``plan`` its JSON."""

    name: str
    state: str
    outputs: tuple[PortInfo, ...]
    regions: tuple[RegionInfo, ...]
    plan: Any = None


class About(msgspec.Struct, frozen=True):
    """What a library says of itself; ``plan`` is the plan's JSON, ``build`` names versions and targets.

    A library that adapts itself names all its ``plans``; its own fields are then those of the first.
    """

    inputs: tuple[PortInfo, ...]
    outputs: tuple[PortInfo, ...]
    regions: tuple[RegionInfo, ...]
    build: dict[str, str]
    plan: Any = None
    plans: tuple[PlanInfo, ...] = ()


class MemoryBytes(msgspec.Struct, frozen=True):
    """Bytes that a library takes to run: its ``weights``; its ``tensors``, those inside of regions among them; and the
    ``scratch`` that kernels ask for beside these, which only a device can say.  0 before a library is loaded there."""

    weights: int
    tensors: int
    scratch: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.tensors + self.scratch
