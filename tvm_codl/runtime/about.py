"""A built library's description of itself, and its memory."""

from __future__ import annotations

from typing import Any

import msgspec


class PortInfo(msgspec.Struct, frozen=True):
    """A network input or output: the stored tensor's shape, and ``crop``, (axis, lo, hi) of it that is the user's, or empty."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    crop: tuple[int, ...] = ()


class RegionInfo(msgspec.Struct, frozen=True):
    """One region: its processor, and the operators (by id) that it holds."""

    name: str
    processor: str
    operators: str


class PlanInfo(msgspec.Struct, frozen=True):
    """One of several plans: ``state`` is the phone's state that it is for (calm, cpu busy, gpu throttled), ``plan`` its JSON."""

    name: str
    state: str
    outputs: tuple[PortInfo, ...]
    regions: tuple[RegionInfo, ...]
    plan: Any = None


class About(msgspec.Struct, frozen=True):
    """A library's description; ``plan`` is the plan's JSON, ``build`` has versions and targets.

    An adaptive library lists all its ``plans``; the other fields are then those of the first.
    """

    inputs: tuple[PortInfo, ...]
    outputs: tuple[PortInfo, ...]
    regions: tuple[RegionInfo, ...]
    build: dict[str, str]
    plan: Any = None
    plans: tuple[PlanInfo, ...] = ()


class MemoryBytes(msgspec.Struct, frozen=True):
    """Bytes that a library needs to run: ``weights``, ``tensors`` (also those inside regions), and the ``scratch`` that
    kernels allocate; only the device knows the latter, 0 before the library is loaded."""

    weights: int
    tensors: int
    scratch: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.tensors + self.scratch
