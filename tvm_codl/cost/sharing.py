"""SharingCost: what it costs that two processors work on one network, apart from the kernels."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.errors import UserError

Bytes = NDArray[np.float64]


class SharingCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Milliseconds, as measured on one device.

    ``wait_cpu_ms``: the CPU waits for something that the GPU has just finished (event until a CPU thread goes on).
    ``wait_gpu_ms``: the GPU waits for something that the CPU has just finished (release until a kernel starts).
    ``copy_ms_per_mb``: moving 10^6 bytes between the processors' memories; 0 where memory is unified.
    ``relayout_ms_per_mb``: rewriting 10^6 bytes between "height outermost" and "channels outermost".
    """

    wait_cpu_ms: float = 0.03
    wait_gpu_ms: float = 0.03
    copy_ms_per_mb: float = 0.0
    relayout_ms_per_mb: float = 0.3

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite time >= 0, not {value}")

    def edge_ms(self, to_cpu: Bytes, to_gpu: Bytes, relayout: Bytes) -> Bytes:
        """Times of hand-overs of ``to_cpu`` and ``to_gpu`` bytes, after which ``relayout`` bytes change layout.

        The two waits overlap where each processor waits for the other, so the longer one counts; bytes share one
        memory, so they add up.  Arguments and result broadcast.
        """
        waits = np.maximum(np.where(to_cpu > 0, self.wait_cpu_ms, 0.0), np.where(to_gpu > 0, self.wait_gpu_ms, 0.0))
        moved = (to_cpu + to_gpu) * self.copy_ms_per_mb + relayout * self.relayout_ms_per_mb
        result: Bytes = waits + moved / 1e6
        return result

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")

    @classmethod
    def load(cls, path: str | Path) -> SharingCost:
        """Raises :class:`UserError` for a file that does not hold sharing costs."""
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError) as error:
            raise UserError(f"{path} holds no sharing costs", str(error), "measure the device again") from error
