"""Contention: how much slower each processor becomes while the other works.

Two processors of a phone share memory, caches and power.  What they take from each other depends on how much memory
either moves beyond its own caches, so the slow-down is learned as a function of both sides' traffic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tvm_codl.records.record import Processor

Numbers = NDArray[np.float64]


class Beside(msgspec.Struct, frozen=True):
    """One measurement: a kernel of ``processor`` took ``busy_ms`` beside another one of the other processor.

    ``bytes`` and ``alone_ms`` are its own, ``other_bytes`` and ``other_alone_ms`` the other's: bytes are what a kernel
    must read and write once, not what its caches then fetch.
    """

    processor: Processor
    bytes: float
    alone_ms: float
    other_bytes: float
    other_alone_ms: float
    busy_ms: float

    @property
    def ratio(self) -> float:
        return self.busy_ms / self.alone_ms


class Side(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One processor's slow-down, ``1 + always + memory * own * other`` where both work.

    ``own`` and ``other`` are the traffic of both sides as a share (0 to 1) of ``peak``, the most that either was seen
    to move alone, in bytes per ms.  Traffic is what a piece moves beyond ``cache``, the bytes that disturb nobody.
    """

    always: float = 0.0
    memory: float = 0.0
    peak: float = 1.0
    cache: float = 0.0

    def __post_init__(self) -> None:
        terms = (self.always, self.memory, self.cache)
        if not (all(0 <= term < np.inf for term in terms) and 0 < self.peak < np.inf):
            raise ValueError("a slow-down's terms are finite and >= 0, a peak is > 0")

    def traffic(self, bytes: ArrayLike, ms: ArrayLike) -> Numbers:
        """Bytes per ms beyond the cache, of a piece that takes ``ms`` > 0 alone."""
        result: Numbers = np.maximum(np.asarray(bytes, dtype=float) - self.cache, 0.0) / np.asarray(ms, dtype=float)
        return result


class Contention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Slow-down of both processors; the default knows of none."""

    cpu: Side = Side()
    gpu: Side = Side()

    @classmethod
    def fit(cls, samples: Sequence[Beside]) -> Contention:
        """Least squares over what was measured, each term at least 0 (a processor is not helped by the other's work).

        A processor without samples is taken not to slow down.
        """
        sizes = sorted({s.bytes for s in samples} | {s.other_bytes for s in samples})
        caches = [0.0, *(math.sqrt(below * above) for below, above in itertools.pairwise(sizes))]
        options = [_fitted(samples, cache) for cache in caches]
        return cls(*min(options, key=lambda option: option[1])[0])

    def slow_down(self, cpu_traffic: ArrayLike, gpu_traffic: ArrayLike) -> tuple[Numbers, Numbers]:
        """Factors (>= 1) of the CPU's and the GPU's times while pieces of these traffics (bytes per ms) run together.

        Arguments and results broadcast.
        """
        shared = _share(cpu_traffic, self.cpu.peak) * _share(gpu_traffic, self.gpu.peak)
        return 1 + self.cpu.always + self.cpu.memory * shared, 1 + self.gpu.always + self.gpu.memory * shared

    def factors(self, cpu_traffic: float, gpu_traffic: float) -> tuple[float, float]:
        """:meth:`slow_down` of one pair, without arrays."""
        shared = min(cpu_traffic / self.cpu.peak, 1.0) * min(gpu_traffic / self.gpu.peak, 1.0)
        return 1 + self.cpu.always + self.cpu.memory * shared, 1 + self.gpu.always + self.gpu.memory * shared

    def together(
        self, cpu_ms: ArrayLike, gpu_ms: ArrayLike, cpu_bytes: ArrayLike, gpu_bytes: ArrayLike
    ) -> tuple[Numbers, Numbers]:
        """When each of two pieces that start at once ends, in ms; a piece of time 0 is none.

        Both are slowed until the first one ends; the other goes on alone at its own speed.  Infinite times stay so.
        """
        cpu, gpu = np.broadcast_arrays(np.asarray(cpu_ms, dtype=float), np.asarray(gpu_ms, dtype=float))
        both = np.isfinite(cpu) & np.isfinite(gpu) & (cpu > 0) & (gpu > 0)
        c, g = np.where(both, cpu, 1.0), np.where(both, gpu, 1.0)
        slow_c, slow_g = self.slow_down(self.cpu.traffic(cpu_bytes, c), self.gpu.traffic(gpu_bytes, g))
        first = np.minimum(c * slow_c, g * slow_g)
        end_c = first + np.maximum(c - first / slow_c, 0.0)
        end_g = first + np.maximum(g - first / slow_g, 0.0)
        return np.where(both, end_c, cpu), np.where(both, end_g, gpu)


def _share(traffic: ArrayLike, peak: float) -> Numbers:
    result: Numbers = np.clip(np.asarray(traffic, dtype=float) / peak, 0.0, 1.0)
    return result


def _fitted(samples: Sequence[Beside], cache: float) -> tuple[list[Side], float]:
    """Both sides for caches of that size, and the sum of squares that they miss."""
    sizer = Side(cache=cache)
    rows = {
        processor: [
            (
                s.ratio - 1,
                float(sizer.traffic(s.bytes, s.alone_ms)),
                float(sizer.traffic(s.other_bytes, s.other_alone_ms)),
            )
            for s in samples
            if s.processor == processor
        ]
        for processor in ("cpu", "gpu")
    }
    peaks = {}
    for processor, other in (("cpu", "gpu"), ("gpu", "cpu")):
        seen = [own for _, own, _ in rows[processor]] + [far for _, _, far in rows[other]]
        peaks[processor] = max(seen, default=0.0) or 1.0
    sides, missed = [], 0.0
    for processor, other in (("cpu", "gpu"), ("gpu", "cpu")):
        excess = np.array([row[0] for row in rows[processor]])
        shared = np.array([row[1] * row[2] for row in rows[processor]]) / (peaks[processor] * peaks[other])
        always, memory = _terms(excess, shared)
        missed += float(((always + memory * shared - excess) ** 2).sum())
        sides.append(Side(always, memory, peaks[processor], cache))
    return sides, missed


def _terms(excess: Numbers, shared: Numbers) -> tuple[float, float]:
    """Least squares of ``always + memory * shared``: of all solutions with terms left out, the best one without
    negative terms."""
    options = [(0.0, 0.0)]
    for columns in ((True, True), (True, False), (False, True)) if len(excess) else ():
        rows = np.column_stack([np.ones(len(excess)) * columns[0], shared * columns[1]])
        always, memory = np.linalg.lstsq(rows, excess, rcond=None)[0]
        if always >= 0 and memory >= 0:
            options.append((float(always), float(memory)))
    return min(options, key=lambda option: float(((option[0] + option[1] * shared - excess) ** 2).sum()))
