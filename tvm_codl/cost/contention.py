"""Contention: how much slower each processor becomes while the other works.

Two processors of a phone share its memory, and what both move in a millisecond is no more than the memory's bandwidth:
the roofline of several processors of Gables (Hill and Reddi, "Gables: A Roofline Model for Mobile SoCs", HPCA 2019).  A
piece of an operator that moves ``a`` bytes per ms by itself, beside one that moves ``b``, takes ``(a + b) / bandwidth``
times as long, if that is more than once.  What stays in caches is no such traffic.  Whatever else they share (power, a
cache) slows each of them down by a share of its own.
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
    """One processor: ``always``, the share by which it is slowed down by any work of the other one, and ``cache``, the
    bytes up to which an operator finds what was there before in its caches."""

    always: float = 0.0
    cache: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= term < np.inf for term in (self.always, self.cache)):
            raise ValueError("a slow-down's terms are finite and >= 0")

    def beyond(self, bytes: ArrayLike) -> Numbers:
        """What the memory moves for tensors of so many bytes: nothing, or all of it, since what is read from end to end
        again and again, and is larger than a cache, is never there when it is asked for."""
        size = np.asarray(bytes, dtype=float)
        result: Numbers = np.where(size > self.cache, size, 0.0)
        return result


class Contention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Slow-down of both processors; the default knows of none.

    ``bandwidth``: the bytes per ms that the memory gives both together; 0 where no limit was seen.
    """

    cpu: Side = Side()
    gpu: Side = Side()
    bandwidth: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.bandwidth < np.inf:
            raise ValueError("a bandwidth is finite, and 0 where none is known")

    @classmethod
    def fit(cls, samples: Sequence[Beside]) -> Contention:
        """Medians of what was measured: of slow-downs beside work that leaves the memory alone, and of what both move where
        neither's cache holds what it reads.  Of sizes of the cache, that which misses the logarithms least.

        Each term is at least 0 (a processor is not helped by the other's work), and both have at least the bandwidth that
        either has alone.  A processor without samples is taken not to slow down.
        """
        sizes = sorted({s.bytes for s in samples} | {s.other_bytes for s in samples})
        caches = [0.0, *(math.sqrt(below * above) for below, above in itertools.pairwise(sizes))]
        options = [_fitted(samples, cache) for cache in caches]
        return min(options, key=lambda option: option[1])[0]

    def factors(self, cpu_traffic: float, gpu_traffic: float) -> tuple[float, float]:
        """Factors (>= 1) of the CPU's and the GPU's times while pieces that move so many bytes per ms beyond their
        caches run together."""
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
        """When each of two pieces that start at once ends, in ms; a piece of time 0 is none.  Bytes are those beyond caches.

        Both are slowed until the first one ends; the other goes on alone at its own speed.  Infinite times stay so.
        """
        cpu, gpu = np.broadcast_arrays(np.asarray(cpu_ms, dtype=float), np.asarray(gpu_ms, dtype=float))
        both = np.isfinite(cpu) & np.isfinite(gpu) & (cpu > 0) & (gpu > 0)
        c, g = np.where(both, cpu, 1.0), np.where(both, gpu, 1.0)
        slow_c, slow_g = self.slow_down(np.asarray(cpu_bytes, dtype=float) / c, np.asarray(gpu_bytes, dtype=float) / g)
        first = np.minimum(c * slow_c, g * slow_g)
        end_c = first + np.maximum(c - first / slow_c, 0.0)
        end_g = first + np.maximum(g - first / slow_g, 0.0)
        return np.where(both, end_c, cpu), np.where(both, end_g, gpu)

    def scaled(self, factor: float) -> Contention:
        """With ``factor`` times as much of it; 0 for none."""
        cpu, gpu = (Side(side.always * factor, side.cache) for side in (self.cpu, self.gpu))
        return Contention(cpu, gpu, self.bandwidth / factor if factor else 0.0)


def usual_contention(found: Sequence[Contention]) -> Contention:
    """Of several that were measured the one whose slow-down of two streams is the middle one (of an even count the
    smaller), with the median of what is slowed always."""
    middle = sorted(found, key=lambda one: 1 / one.bandwidth if one.bandwidth else 0.0)[(len(found) - 1) // 2]
    cpu, gpu = (
        Side(statistics.median_low(one.always for one in sides), side.cache)
        for side, sides in (
            (middle.cpu, [one.cpu for one in found]),
            (middle.gpu, [one.gpu for one in found]),
        )
    )
    return Contention(cpu, gpu, middle.bandwidth)


def _fitted(samples: Sequence[Beside], cache: float) -> tuple[Contention, float]:
    """The best law for caches of that size, and what it misses."""
    if not samples:
        return Contention(), 0.0
    sizer = Side(cache=cache)
    own = sizer.beyond([s.bytes for s in samples]) / np.array([s.alone_ms for s in samples])
    both = own + sizer.beyond([s.other_bytes for s in samples]) / np.array([s.other_alone_ms for s in samples])
    ratio = np.array([s.ratio for s in samples])
    on_cpu = np.array([s.processor == "cpu" for s in samples])
    streams = (own > 0) & (both > own)
    always = [_middle_share(ratio[which & ~streams]) for which in (on_cpu, ~on_cpu)]
    slowed = 1 + np.where(on_cpu, *always)
    limit = 0.0
    if streams.any():
        # What both moved together while each was slowed by the other.
        limit = max(float(np.median((both * slowed / ratio)[streams])), float(own.max()))
    crowd = np.maximum(both / limit, 1.0) if limit else np.ones_like(both)
    missed = float(np.abs(np.log(ratio / (slowed * crowd))).sum())
    cpu, gpu = (Side(share, cache) for share in always)
    return Contention(cpu, gpu, limit), missed


def _middle_share(ratios: Numbers) -> float:
    return max(float(np.median(ratios)) - 1, 0.0) if len(ratios) else 0.0
