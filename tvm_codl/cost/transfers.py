"""TransferCost: what sharing a network between two processors costs, apart from the kernels."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tvm_codl.cost.contention import Contention

Bytes = NDArray[np.float64]


class TransferCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured on one device.

    ``wait_cpu_ms``: from the GPU's event until the waiting CPU thread goes on.
    ``wait_gpu_ms``: from the CPU's release until the idle GPU starts a kernel.
    Only the processor that finishes first waits.
    ``copy_ms_per_mb``: moving 10^6 bytes between the processors' memories in either direction, as earlier versions
    measured it; 0 where memory is unified, and where the directions are known (:meth:`by_direction`).
    ``join_ms_per_mb``: copying 10^6 bytes of pieces together that do not lie one behind the other.
    ``far_cpu_ms_per_mb``, ``far_gpu_ms_per_mb``: extra time to read 10^6 bytes that the other processor just wrote.
    ``signal_ms``: the CPU's time to enqueue a wait of the GPU for it, and to end that wait.
    ``feed_ms``: the CPU's time to enqueue one GPU kernel.
    ``launch_ms``: the GPU's idle time between two consecutive kernels; 0 where the kernels' times have it already.
    ``start_ms``: from the start of a run until the GPU's first kernel starts.
    ``to_cpu_ms_per_mb``, ``to_gpu_ms_per_mb``: moving 10^6 bytes to a processor's own memory; 0 where memory is unified.
    What a move of few bytes takes is in the waits.
    ``move_feed_ms``: the CPU's time to enqueue one such move.
    ``contention``: how much each processor slows down while the other works.
    """

    wait_cpu_ms: float = 0.03
    wait_gpu_ms: float = 0.03
    copy_ms_per_mb: float = 0.0
    join_ms_per_mb: float = 0.3
    far_cpu_ms_per_mb: float = 0.0
    far_gpu_ms_per_mb: float = 0.0
    signal_ms: float = 0.0
    feed_ms: float = 0.0
    launch_ms: float = 0.0
    start_ms: float = 0.0
    to_cpu_ms_per_mb: float = 0.0
    to_gpu_ms_per_mb: float = 0.0
    move_feed_ms: float = 0.0
    contention: Contention = Contention()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name != "contention" and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite time >= 0, not {value}")

    def by_direction(self) -> TransferCost:
        """The same costs with moves told apart by direction."""
        if not self.copy_ms_per_mb:
            return self
        return msgspec.structs.replace(
            self,
            copy_ms_per_mb=0.0,
            to_cpu_ms_per_mb=self.to_cpu_ms_per_mb + self.copy_ms_per_mb,
            to_gpu_ms_per_mb=self.to_gpu_ms_per_mb + self.copy_ms_per_mb,
        )

    def move_ms(self, to_cpu: ArrayLike, to_gpu: ArrayLike) -> Bytes:
        """Time to move ``to_cpu`` and ``to_gpu`` bytes, one direction after the other."""
        rates = self.by_direction()
        to_cpu, to_gpu = np.asarray(to_cpu, np.float64), np.asarray(to_gpu, np.float64)
        result: Bytes = (to_cpu * rates.to_cpu_ms_per_mb + to_gpu * rates.to_gpu_ms_per_mb) / 1e6
        return result

    def wait_ms(self, to_cpu: Bytes, to_gpu: Bytes, cpu_later_ms: ArrayLike = 0.0, doubt_ms: ArrayLike = 0.0) -> Bytes:
        """The wait for handing over ``to_cpu`` and ``to_gpu`` bytes whose producer's CPU part ends ``cpu_later_ms`` after
        its GPU part (negative: before).

        The first to finish waits.  The result is the mean over ``cpu_later_ms`` +- ``doubt_ms``, uniformly distributed.
        Arguments and result broadcast.
        """
        later = np.asarray(cpu_later_ms, dtype=np.float64)
        doubt = np.maximum(np.asarray(doubt_ms, dtype=np.float64), 1e-12)
        cpu_is_last = np.clip(0.5 + later / (2 * doubt), 0.0, 1.0)
        by_cpu = np.where(to_cpu > 0, self.wait_cpu_ms, 0.0)
        by_gpu = np.where(to_gpu > 0, self.wait_gpu_ms, 0.0)
        result: Bytes = cpu_is_last * by_gpu + (1 - cpu_is_last) * by_cpu
        return result

    def bytes_ms(self, to_cpu: Bytes, to_gpu: Bytes, joined: Bytes) -> Bytes:
        """Time to move ``to_cpu`` and ``to_gpu`` bytes and to join ``joined`` bytes of pieces.

        Moves add up; the processors' far reads overlap, so the longer one counts.
        """
        moved = self.move_ms(to_cpu, to_gpu) * 1e6 + joined * self.join_ms_per_mb
        far = np.maximum(to_cpu * self.far_cpu_ms_per_mb, to_gpu * self.far_gpu_ms_per_mb)
        return (moved + far) / 1e6

    def edge_ms(self, to_cpu: Bytes, to_gpu: Bytes, joined: Bytes) -> Bytes:
        """The longer wait plus :meth:`bytes_ms`: for a hand-over where the last to finish is unknown."""
        waits = np.maximum(np.where(to_cpu > 0, self.wait_cpu_ms, 0.0), np.where(to_gpu > 0, self.wait_gpu_ms, 0.0))
        return waits + self.bytes_ms(to_cpu, to_gpu, joined)
