"""What is known about a phone."""

from __future__ import annotations

import msgspec


class DeviceProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts that the phone itself reports.  JSON by :func:`msgspec.json.encode`.

    ``cpu_cores`` and ``gpu_cores`` are the core numbers that each processor may use; ``gpu_cores`` is empty where the
    GPU is no CPU in disguise.  ``local_memory`` is in bytes.  ``build_id`` changes with the runtime that executes: times
    measured on one build are not those of another.
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

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> DeviceProfile:
        return msgspec.json.decode(text, type=cls)
