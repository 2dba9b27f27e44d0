"""Contention: how much slower each processor becomes while the other works.

Both share the memory's bandwidth, as in Gables (Hill and Reddi, "Gables: A Roofline Model for Mobile SoCs", HPCA 2019):
pieces that alone move ``a`` and ``b`` bytes per ms take ``max((a + b) / bandwidth, 1)`` times as long together.  Traffic
within caches does not count.  Everything else that they share (power, a cache) is a constant factor for each.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tvm_codl.records.record import Processor

Numbers = NDArray[np.float64]


class Beside(msgspec.Struct, frozen=True):
    """One measurement: a kernel of ``processor`` took ``busy_ms`` beside another one of the other processor.

    Bytes are what a kernel must read and write once, not its cache traffic.
    """

    processor: Processor
    bytes: float
    alone_ms: float
    other_bytes: float
    other_alone_ms: float
    busy_ms: float


class Side(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One processor: ``always``, its relative slow-down beside any work of the other one, and ``cache``, the bytes that
    its caches hold."""

    always: float = 0.0
    cache: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= term < np.inf for term in (self.always, self.cache)):
            raise ValueError("a slow-down's terms are finite and >= 0")

    def beyond(self, bytes: ArrayLike) -> Numbers:
        """DRAM traffic: 0 if the tensors fit in cache, else all bytes."""
        size = np.asarray(bytes, dtype=float)
        return np.where(size > self.cache, size, 0.0)


class Contention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Slow-down of both processors; none by default.  ``bandwidth``: the memory's bytes per ms; 0 if no limit was seen."""

    cpu: Side = Side()
    gpu: Side = Side()
    bandwidth: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.bandwidth < np.inf:
            raise ValueError("a bandwidth is finite, and 0 where none is known")

    @classmethod
    def fit(cls, samples: Sequence[Beside]) -> Contention:
        """``always`` is the median slow-down beside work without traffic, ``bandwidth`` the median of both processors'
        traffic.  The cache size is the one with the smallest sum of absolute log-errors.

        Slow-downs are at least 0 (0 without samples), the bandwidth at least what either processor reaches alone.
        """
        sizes = sorted({s.bytes for s in samples} | {s.other_bytes for s in samples})
        caches = [0.0, *(math.sqrt(below * above) for below, above in itertools.pairwise(sizes))]
        options = [_fitted(samples, cache) for cache in caches]
        return min(options, key=lambda option: option[1])[0]

    def factors(self, cpu_traffic: float, gpu_traffic: float) -> tuple[float, float]:
        """Factors (>= 1) of the CPU's and the GPU's times at that DRAM traffic, in bytes per ms."""
        crowd = max((cpu_traffic + gpu_traffic) / self.bandwidth, 1.0) if self.bandwidth else 1.0
        return (1 + self.cpu.always) * crowd, (1 + self.gpu.always) * crowd

    def slow_down(self, cpu_traffic: ArrayLike, gpu_traffic: ArrayLike) -> tuple[Numbers, Numbers]:
        """:meth:`factors` of arrays, which broadcast."""
        both = np.asarray(cpu_traffic, dtype=float) + np.asarray(gpu_traffic, dtype=float)
        crowd = np.maximum(both / self.bandwidth, 1.0) if self.bandwidth else np.ones_like(both)
        return (1 + self.cpu.always) * crowd, (1 + self.gpu.always) * crowd

    def together(
        self, cpu_ms: ArrayLike, gpu_ms: ArrayLike, cpu_bytes: ArrayLike, gpu_bytes: ArrayLike
    ) -> tuple[Numbers, Numbers]:
        """When two pieces end that start together, in ms; bytes are DRAM traffic.

        Both are slow until the first one ends.  A piece of time 0 is none; infinite times stay infinite.
        """
        cpu, gpu = np.broadcast_arrays(np.asarray(cpu_ms, dtype=float), np.asarray(gpu_ms, dtype=float))
        both = np.isfinite(cpu) & np.isfinite(gpu) & (cpu > 0) & (gpu > 0)
        c, g = np.where(both, cpu, 1.0), np.where(both, gpu, 1.0)
        slow_c, slow_g = self.slow_down(np.asarray(cpu_bytes, dtype=float) / c, np.asarray(gpu_bytes, dtype=float) / g)
        first = np.minimum(c * slow_c, g * slow_g)
        end_c = first + np.maximum(c - first / slow_c, 0.0)
        end_g = first + np.maximum(g - first / slow_g, 0.0)
        return np.where(both, end_c, cpu), np.where(both, end_g, gpu)


def usual_contention(measured: Sequence[Contention]) -> Contention:
    """The measurement of median (lower median) slow-down by bandwidth, with the lower median of each ``always``."""
    slowest_last = sorted(measured, key=lambda each: 1 / each.bandwidth if each.bandwidth else 0.0)
    middle = slowest_last[(len(measured) - 1) // 2]
    cpu = Side(statistics.median_low(each.cpu.always for each in measured), middle.cpu.cache)
    gpu = Side(statistics.median_low(each.gpu.always for each in measured), middle.gpu.cache)
    return Contention(cpu, gpu, middle.bandwidth)


def _fitted(samples: Sequence[Beside], cache: float) -> tuple[Contention, float]:
    """The best fit for caches of that size, and its sum of absolute log-errors."""
    if not samples:
        return Contention(), 0.0
    sizer = Side(cache=cache)
    own = sizer.beyond([s.bytes for s in samples]) / np.array([s.alone_ms for s in samples])
    both = own + sizer.beyond([s.other_bytes for s in samples]) / np.array([s.other_alone_ms for s in samples])
    ratio = np.array([s.busy_ms / s.alone_ms for s in samples])
    on_cpu = np.array([s.processor == "cpu" for s in samples])
    streams = (own > 0) & (both > own)
    always = [_middle_share(ratio[which & ~streams]) for which in (on_cpu, ~on_cpu)]
    slowed = 1 + np.where(on_cpu, *always)
    limit = 0.0
    if streams.any():
        # Traffic of both while each slows the other.
        limit = max(float(np.median((both * slowed / ratio)[streams])), float(own.max()))
    crowd = np.maximum(both / limit, 1.0) if limit else np.ones_like(both)
    missed = float(np.abs(np.log(ratio / (slowed * crowd))).sum())
    cpu, gpu = (Side(share, cache) for share in always)
    return Contention(cpu, gpu, limit), missed


def _middle_share(ratios: Numbers) -> float:
    return max(float(np.median(ratios)) - 1, 0.0) if len(ratios) else 0.0
