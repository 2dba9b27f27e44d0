"""The facts of a phone."""

from __future__ import annotations

from typing import Literal

import msgspec

from tvm_codl.device.power import Power
from tvm_codl.device.soc import Soc


class Cluster(msgspec.Struct, frozen=True, omit_defaults=True):
    """Equal cores of a CPU: their numbers, highest clock in MHz, Linux's capacity (1024: the fastest core) and the design
    as ``implementer:part``.  0 and empty: unknown."""

    cores: tuple[int, ...]
    max_mhz: int = 0
    capacity: int = 0
    part: str = ""


class Cache(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cache of the CPU: level from 1, ``data``, ``instruction`` or ``unified``, its bytes, and the cores that share
    it."""

    level: int
    kind: str
    bytes: int
    cores: tuple[int, ...] = ()


class DeviceProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts that the phone itself reports; 0, empty or False where it does not.  JSON by :meth:`to_json`.

    ``name`` identifies the phone in records.  ``cpu_cores`` and ``gpu_cores`` are the core numbers that each processor may
    use; ``gpu_cores`` is empty for a real GPU.  ``local_memory`` and all other sizes are in bytes.  ``build_id`` changes
    with the runtime: times of one build do not hold for another.

    The facts of CoDL's formulas (:class:`~tvm_codl.device.soc.Soc`) are ``global_mem_cache_size``, ``compute_units``,
    ``max_work_group`` (CoDL's ``max_work_group_size``) and ``kernel_wave_size``.  ``memory_kind`` is ``unified`` where both
    processors share memory through map and unmap, ``svm`` where they need no map (fine-grained shared virtual memory),
    ``discrete`` where data is copied.  ``vector_width`` is the preferred number of float32 values; ``image2d`` the largest
    image's width and height in pixels, (0, 0) without images; ``device_queues`` the number of queues that a kernel may
    enqueue to, ``device_queue_size`` the size of one, ``device_events`` the events in use at once.  ``power`` is measured
    by a person; no phone reports it.
    """

    name: str
    arch: str
    cpu_name: str
    cpu_cores: tuple[int, ...]
    cpu_target: str
    gpu_name: str
    gpu_target: str
    gpu_version: str = ""
    gpu_cores: tuple[int, ...] = ()
    compute_units: int = 0
    max_work_group: int = 0
    local_memory: int = 0
    unified_memory: bool = True
    float16: bool = False
    build_id: str = ""
    clusters: tuple[Cluster, ...] = ()
    caches: tuple[Cache, ...] = ()
    global_mem_cache_size: int = 0
    kernel_wave_size: int = 0
    gpu_mhz: int = 0
    global_memory: int = 0
    largest_buffer: int = 0
    vector_width: int = 0
    memory_kind: Literal["", "unified", "svm", "discrete"] = ""
    images: bool = False
    image2d: tuple[int, int] = (0, 0)
    device_queues: int = 0
    device_queue_size: int = 0
    device_events: int = 0
    power: Power | None = None

    @property
    def soc(self) -> Soc:
        """The facts under CoDL's names."""
        return Soc(self.global_mem_cache_size, self.compute_units, self.max_work_group, self.kernel_wave_size)

    def with_soc(self, soc: Soc) -> DeviceProfile:
        """This profile with the known facts of ``soc`` in place of what the device reported."""
        stated = {name: value for name in soc.__struct_fields__ if (value := getattr(soc, name))}
        if "max_work_group_size" in stated:
            stated["max_work_group"] = stated.pop("max_work_group_size")
        return msgspec.structs.replace(self, **stated)

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> DeviceProfile:
        """Also reads what an older or newer server reports: missing facts are unknown, others are ignored."""
        return msgspec.json.decode(text, type=cls)
