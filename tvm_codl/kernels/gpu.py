"""What a GPU is to our kernels: which loops suit it, and how much of it there is.  Imports no TVM.

This is the one place that decides from a device's facts; schedules, the cost model and explanations ask it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

#: ``played``: a CPU that plays a GPU.  ``bifrost``, ``valhall``: Mali by generation.  ``adreno``.  ``mobile``: another
#: GPU that shares the CPU's memory.  ``local``: a GPU with memory of its own, whose groups have fast local memory.
Kind = Literal["played", "bifrost", "valhall", "adreno", "mobile", "local"]
KINDS: tuple[Kind, ...] = ("played", "bifrost", "valhall", "adreno", "mobile", "local")

#: GPUs of phones, whose kernels read four input channels a step and keep their tiles to few registers.
PHONES: frozenset[str] = frozenset({"bifrost", "valhall", "adreno", "mobile"})
#: Whose local memory is memory of its own.
LOCAL_KINDS = frozenset({"adreno", "local"})

#: Float32 that a work-item keeps in registers without losing occupancy below half, addresses aside: Mali has 64 registers
#: for each work-item at half occupancy, Adreno loses a third of its waves beyond as many, discrete GPUs have twice as many.
_REGISTERS: Mapping[str, int] = {
    "played": 512,
    "bifrost": 48,
    "valhall": 48,
    "adreno": 40,
    "mobile": 48,
    "local": 128,
}
_WARPS: Mapping[str, int] = {"played": 1, "bifrost": 8, "valhall": 16, "adreno": 64, "mobile": 16, "local": 32}
_UNITS: Mapping[str, int] = {"played": 1, "bifrost": 8, "valhall": 8, "adreno": 4, "mobile": 4, "local": 16}
#: OpenCL 1.2's minimum for a full profile.
_LOCAL_MEMORY = 32 * 1024
#: Work-items in a group of a kernel that shares nothing within it.
GROUP = 64
_MALI = re.compile(r"mali-([gt])(\d+)", re.IGNORECASE)
#: Mali's of the Bifrost generation; later ones are Valhall or newer.
_BIFROST = frozenset({31, 51, 52, 71, 72, 76})


class Gpu(msgspec.Struct, frozen=True):
    """``lanes``: float32 in one vector of a kernel.  ``warp``: work-items that run in step.  ``units``: compute units.
    ``max_group``: work-items that a group may have.  ``local_memory``: bytes of a group's fast memory, 0 where a GPU has
    none of its own (Mali keeps it in main memory).  ``registers``: float32 that a work-item may hold."""

    kind: Kind = "played"
    lanes: int = 16
    warp: int = 1
    units: int = 1
    max_group: int = 256
    local_memory: int = 0
    registers: int = 512

    @classmethod
    def of(cls, profile: Mapping[str, Any], cpu_lanes: int) -> Gpu:
        """From the fields of a :class:`~tvm_codl.device.profile.DeviceProfile`; missing ones get a kind's usual value.

        ``cpu_lanes`` is the width of the CPU's vectors, which a CPU that plays a GPU has too.
        """
        kind = kind_of(profile)
        local = int(profile.get("local_memory") or 0) if kind in LOCAL_KINDS else 0
        return cls(
            kind,
            cpu_lanes if kind == "played" else 4,
            int(profile.get("kernel_wave_size") or 0) if kind == "local" else _WARPS[kind],
            int(profile.get("compute_units") or 0),
            int(profile.get("max_work_group") or 0),
            local,
        ).filled()

    def filled(self) -> Gpu:
        """With a kind's usual values where something is unknown (0)."""
        return msgspec.structs.replace(
            self,
            warp=self.warp or _WARPS[self.kind],
            units=self.units or _UNITS[self.kind],
            max_group=self.max_group or 256,
            registers=_REGISTERS[self.kind],
        )

    @property
    def group(self) -> int:
        """Work-items in a group: 1 on a CPU, for which a group is one task."""
        return 1 if self.kind == "played" else max(min(max(GROUP, self.warp), self.max_group), 1)


def usual(kind: Kind, lanes: int = 4) -> Gpu:
    """A GPU of ``kind`` of which nothing else is known."""
    local = _LOCAL_MEMORY if kind in LOCAL_KINDS else 0
    return Gpu(kind, lanes, 0, 0, 0, local).filled()


def kind_of(profile: Mapping[str, Any]) -> Kind:
    """Which loops suit the GPU of a device profile."""
    name = f"{profile.get('gpu_name') or ''} {profile.get('gpu_version') or ''}"
    if profile.get("gpu_cores") or re.search(r"\b(pocl|cpu|basic|pthread)\b", name, re.IGNORECASE):
        return "played"
    if mali := _MALI.search(name):
        return "bifrost" if mali[1].lower() == "t" or int(mali[2]) in _BIFROST else "valhall"
    if "adreno" in name.lower():
        return "adreno"
    return "mobile" if profile.get("unified_memory", True) else "local"


def kind_in(keys: Iterable[str], lanes: int) -> Kind | Literal[""]:
    """The kind that a target's keys name; by the vectors' width where they name none; empty for a CPU."""
    keys = tuple(keys)
    if "gpu" not in keys:
        return ""
    return next((kind for kind in KINDS if kind in keys), "played" if lanes > 4 else "mobile")
