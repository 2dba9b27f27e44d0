"""DeviceFacts: a phone as numbers that a model can learn from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.reuse import Serves
from tvm_codl.kernels.tiles.dots import GPU_DOT, Dot, dot_of
from tvm_codl.kernels.tiles.vectors import register_lanes
from tvm_codl.records.record import Processor


class DeviceFacts(msgspec.Struct, frozen=True):
    """Zero if unknown.  ``cpu_lanes``: float32 in one vector of a CPU's kernel.  ``cpu_dot``: the CPU's instruction for
    products of 8-bit integers.  Clocks in MHz, caches and memory in bytes."""

    cpu_lanes: int = 16
    cpu_dot: Dot = dot_of("", False, 16, "uint8")
    gpu: Gpu = Gpu()
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
        target = str(profile.get("cpu_target") or "")
        lanes = register_lanes(target)
        return cls(
            cpu_lanes=lanes,
            cpu_dot=dot_of(target, "aarch64" in target or "arm" in target, lanes, "uint8"),
            gpu=Gpu.of(profile, lanes),
            cpu_cores=len(profile.get("cpu_cores") or (0,)),
            cpu_mhz=max((_number(c.get("max_mhz")) for c in profile.get("clusters") or ()), default=0.0),
            cpu_cache=max((_number(c.get("bytes")) for c in profile.get("caches") or ()), default=0.0),
            compute_units=int(_number(profile.get("compute_units"))),
            gpu_mhz=_number(profile.get("gpu_mhz")),
            gpu_cache=_number(profile.get("global_mem_cache_size")),
            max_work_group=int(profile.get("max_work_group") or 0),
            wavefront=int(_number(profile.get("kernel_wave_size"))),
            local_memory=int(_number(profile.get("local_memory"))),
            unified_memory=bool(profile.get("unified_memory", True)),
            float16=bool(profile.get("float16", False)),
        )

    def serves(self, processor: Processor) -> Serves:
        """Which tuned kernels the processor's are."""
        if processor == "cpu":
            return Serves("cpu", self.cpu_lanes)
        return Serves("gpu", self.gpu.lanes, self.gpu.kind)

    def dot(self, processor: Processor) -> Dot:
        """The processor's instruction for products of 8-bit integers."""
        return self.cpu_dot if processor == "cpu" or self.gpu.kind == "played" else GPU_DOT

    def row(self) -> list[float]:
        """Logarithms of the numbers; :data:`COLUMNS` names them."""
        numbers = (self.cpu_lanes, self.gpu.lanes, self.gpu.group, *(getattr(self, name) for name in _NUMBERS))
        return [math.log2(1.0 + float(n)) for n in numbers]


_NUMBERS = tuple(name for name in DeviceFacts.__struct_fields__ if name not in ("cpu_lanes", "cpu_dot", "gpu"))
COLUMNS = tuple(f"device_{name}" for name in ("cpu_lanes", "gpu_lanes", "gpu_group", *_NUMBERS))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
