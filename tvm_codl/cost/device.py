"""DeviceFacts: a phone as numbers that a model can learn from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from tvm_codl.kernels.tiles.vectors import register_lanes
from tvm_codl.records.record import Processor


class DeviceFacts(msgspec.Struct, frozen=True):
    """Zero if unknown.  ``cpu_lanes``, ``gpu_lanes``: float32 in one vector of a kernel; ``gpu_threads``:
    work-items of a group, 1 where a CPU plays the GPU.  Clocks in MHz, caches and memory in bytes."""

    cpu_lanes: int = 16
    gpu_lanes: int = 16
    gpu_threads: int = 1
    cpu_cores: int = 1
    cpu_mhz: float = 0.0
    cpu_cache: float = 0.0
    compute_units: int = 0
    gpu_mhz: float = 0.0
    gpu_cache: float = 0.0
    max_work_group: int = 0
    wavefront: int = 0
    local_memory: int = 0
    unified_memory: bool = True
    float16: bool = False

    @classmethod
    def of(cls, profile: Mapping[str, Any]) -> DeviceFacts:
        """From the fields of a :class:`~tvm_codl.device.profile.DeviceProfile`; missing ones stay unknown."""
        lanes = register_lanes(str(profile.get("cpu_target") or ""))
        played = bool(profile.get("gpu_cores")) or lanes > 4
        group = int(profile.get("max_work_group") or 0)
        return cls(
            cpu_lanes=lanes,
            gpu_lanes=lanes,
            gpu_threads=1 if played else min(64, group or 64),
            cpu_cores=len(profile.get("cpu_cores") or (0,)),
            cpu_mhz=max((_number(c.get("max_mhz")) for c in profile.get("clusters") or ()), default=0.0),
            cpu_cache=max((_number(c.get("bytes")) for c in profile.get("caches") or ()), default=0.0),
            compute_units=int(_number(profile.get("compute_units"))),
            gpu_mhz=_number(profile.get("gpu_mhz")),
            gpu_cache=_number(profile.get("global_mem_cache_size")),
            max_work_group=group,
            wavefront=int(_number(profile.get("kernel_wave_size"))),
            local_memory=int(_number(profile.get("local_memory"))),
            unified_memory=bool(profile.get("unified_memory", True)),
            float16=bool(profile.get("float16", False)),
        )

    def lanes(self, processor: Processor) -> int:
        return self.cpu_lanes if processor == "cpu" else self.gpu_lanes

    def threads(self, processor: Processor) -> int:
        return 1 if processor == "cpu" else self.gpu_threads

    def row(self) -> list[float]:
        """Logarithms of the numbers; :data:`COLUMNS` names them."""
        return [math.log2(1.0 + float(getattr(self, name))) for name in self.__struct_fields__]


COLUMNS = tuple(f"device_{name}" for name in DeviceFacts.__struct_fields__)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
