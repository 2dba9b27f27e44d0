"""Vectors and register tiles for many problems at once: the rules of :mod:`tvm_codl.kernels.tiles.vectors` and
:mod:`tvm_codl.kernels.tiles.tiles`, by numpy."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tvm_codl.kernels.tiles.tiles import FAR_LOAD, FMA_IN_FLIGHT, NEAR_CACHE_BYTES, TARGET_WORK, Problem, cycles
from tvm_codl.kernels.tiles.vectors import PACK_POSITIONS

Integers = NDArray[np.int64]
MOST_BLOCKS = 8


@lru_cache(maxsize=65536)
def best_tile(columns: int, blocks: int, depth: int, lanes: int, registers: int) -> tuple[int, int]:
    """``tiles.candidates(problem, 1)[0]`` for any number of rows."""
    problem = Problem(1, columns, blocks * lanes, depth, 0, lanes, registers)
    pairs = [
        (best, b) for b, best in _best_columns(columns, depth, lanes, registers) if b <= blocks and blocks % b == 0
    ]
    return min(pairs, key=lambda pair: (cycles(problem, *pair), pair[0] + pair[1], -pair[1]))


@lru_cache(maxsize=8192)
def _best_columns(columns: int, depth: int, lanes: int, registers: int) -> tuple[tuple[int, int], ...]:
    """For each count of blocks (blocks, the best columns): which ones does not depend on how many blocks there are."""
    found = []
    for b in range(1, MOST_BLOCKS + 1):
        problem = Problem(1, columns, b * lanes, depth, 0, lanes, registers)
        costs = [(cycles(problem, c, b), c) for c in range(1, min(columns, registers - 2) + 1)]
        if costs and min(costs)[0] < float("inf"):
            found.append((b, min(costs)[1]))
    return tuple(found)


def lanes_for(channels: Integers, widest: int) -> Integers:
    """:func:`vectors.lanes_for` of each."""
    result = np.ones_like(channels)
    for n in (2, 4, 8, 16):
        if n <= widest:
            result = np.where(channels % n == 0, n, result)
    return result


def packings(channels: Integers, positions: Integers, widest: int) -> tuple[Integers, NDArray[np.bool_]]:
    """:func:`vectors.packing` of each."""
    lanes = lanes_for(channels, widest)
    three = (channels == 3) & (widest >= 4)
    fuller = (lanes >= 4) & (lanes < widest) & (widest < channels) & (-(-channels // widest) < channels // lanes)
    fill = (three | fuller) & (positions >= PACK_POSITIONS)
    return np.where(fill, np.where(three, 4, widest), lanes), fill


def largest_divisors(extents: Integers, at_most: Integers) -> Integers:
    """:func:`tiles.largest_divisor` for each pair; ``at_most`` is small."""
    result = np.ones_like(extents)
    for d in range(2, int(at_most.max(initial=1)) + 1):
        result = np.where((extents % d == 0) & (d <= at_most), d, result)
    return result


def default_rows(rows: Integers, columns: Integers, blocks: Integers, depth: Integers, lanes: Integers) -> Integers:
    """Rows for a work-item of an estimated configuration, on a processor whose groups hold one."""
    work = np.maximum(columns * blocks * depth * lanes, 1)
    return largest_divisors(rows, np.minimum(8, np.maximum(1, TARGET_WORK // (4 * work))))


def step_cycles(columns: Integers, blocks: Integers, depth: Integers, lanes: Integers) -> NDArray[np.float64]:
    """Cycles of one step of the reduction in one tile, as :func:`tiles.cycles` estimates them."""
    step = np.maximum(np.maximum(columns * blocks, columns + blocks), FMA_IN_FLIGHT) / 2
    far = 4 * lanes * blocks * depth > NEAR_CACHE_BYTES
    result: NDArray[np.float64] = np.where(far, np.maximum(step, FAR_LOAD * blocks), step) + 0.5
    return result
