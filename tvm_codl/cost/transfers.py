"""TransferCost: what it costs that two processors work on one network, apart from the kernels."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tvm_codl.cost.contention import Contention
from tvm_codl.errors import UserError

Bytes = NDArray[np.float64]


class TransferCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Milliseconds, as measured on one device.

    ``wait_cpu_ms``: the CPU waits for something that the GPU has just finished (event until a CPU thread goes on).
    ``wait_gpu_ms``: the GPU, idle, waits for something that the CPU has just finished (release until a kernel starts).
    A wait for what is long done costs nothing: who comes last does not wait.
    ``copy_ms_per_mb``: moving 10^6 bytes between the processors' memories; 0 where memory is unified.
    ``relayout_ms_per_mb``: rewriting 10^6 bytes between "height outermost" and "channels outermost".
    ``far_cpu_ms_per_mb``, ``far_gpu_ms_per_mb``: what reading 10^6 bytes that the other processor has just written
    takes longer than reading them in a measurement of the kernel alone.
    ``signal_ms``: what it takes the CPU to release a GPU that sleeps.
    ``feed_ms``: what it takes the CPU to enqueue one kernel of the GPU.
    ``launch_ms``: what the GPU does nothing between two kernels that follow each other.
    ``start_ms``: from the start of a run until the GPU's first kernel starts.
    ``contention``: how much slower each processor is while the other works.
    """

    wait_cpu_ms: float = 0.03
    wait_gpu_ms: float = 0.03
    copy_ms_per_mb: float = 0.0
    relayout_ms_per_mb: float = 0.3
    far_cpu_ms_per_mb: float = 0.0
    far_gpu_ms_per_mb: float = 0.0
    signal_ms: float = 0.0
    feed_ms: float = 0.0
    launch_ms: float = 0.0
    start_ms: float = 0.0
    contention: Contention = Contention()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name != "contention" and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite time >= 0, not {value}")

    def wait_ms(self, to_cpu: Bytes, to_gpu: Bytes, cpu_later_ms: ArrayLike = 0.0, doubt_ms: ArrayLike = 0.0) -> Bytes:
        """What waiting adds where ``to_cpu`` and ``to_gpu`` bytes are handed over, and the CPU's part of what makes them
        ends ``cpu_later_ms`` after the GPU's (negative: before it).

        Who is done first waits for the other.  ``cpu_later_ms`` is only known to within ``doubt_ms``, in which it is taken
        to lie anywhere: the result is the mean.  Arguments and result broadcast.
        """
        later = np.asarray(cpu_later_ms, dtype=np.float64)
        doubt = np.maximum(np.asarray(doubt_ms, dtype=np.float64), 1e-12)
        cpu_is_last = np.clip(0.5 + later / (2 * doubt), 0.0, 1.0)
        by_cpu = np.where(to_cpu > 0, self.wait_cpu_ms, 0.0)
        by_gpu = np.where(to_gpu > 0, self.wait_gpu_ms, 0.0)
        result: Bytes = cpu_is_last * by_gpu + (1 - cpu_is_last) * by_cpu
        return result

    def bytes_ms(self, to_cpu: Bytes, to_gpu: Bytes, relayout: Bytes) -> Bytes:
        """Times of moving ``to_cpu`` and ``to_gpu`` bytes and of changing the layout of ``relayout`` bytes.

        Copies share one memory, so they add up; each processor reads from afar by itself, so the longer one counts.
        """
        moved = (to_cpu + to_gpu) * self.copy_ms_per_mb + relayout * self.relayout_ms_per_mb
        far = np.maximum(to_cpu * self.far_cpu_ms_per_mb, to_gpu * self.far_gpu_ms_per_mb)
        result: Bytes = (moved + far) / 1e6
        return result

    def edge_ms(self, to_cpu: Bytes, to_gpu: Bytes, relayout: Bytes) -> Bytes:
        """A hand-over of which nothing is known about who comes last: the longer wait, and :meth:`bytes_ms`."""
        waits = np.maximum(np.where(to_cpu > 0, self.wait_cpu_ms, 0.0), np.where(to_gpu > 0, self.wait_gpu_ms, 0.0))
        result: Bytes = waits + self.bytes_ms(to_cpu, to_gpu, relayout)
        return result

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")

    @classmethod
    def load(cls, path: str | Path) -> TransferCost:
        """Raises :class:`UserError` for a file that does not hold sharing costs."""
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError) as error:
            raise UserError(f"{path} holds no sharing costs", str(error), "measure the device again") from error
