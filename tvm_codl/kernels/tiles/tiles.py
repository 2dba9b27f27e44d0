"""How large a register tile is, and a model that picks one where nothing was measured.

The inner kernel of a convolution or matrix product keeps ``columns × blocks`` vectors of results in registers: that
many output columns by that many blocks of ``lanes`` channels.  Each step of the reduction loads ``blocks`` vectors of
weights and broadcasts ``columns`` values.  All numbers are plain integers, not factors of an extent, so that a piece of
an operator can use the whole operator's.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

# Latency of a fused multiply-add in cycles times the number issued in a cycle: fewer accumulators than this stall.
FMA_IN_FLIGHT = 8
VECTOR_REGISTERS = 32
NEAR_CACHE_BYTES = 32 * 1024
FAR_LOAD = 2.0  # cycles for a vector from the second-level cache
CACHE_BYTES = 384 * 1024
TARGET_WORK = 1 << 20  # multiply-adds that make one GPU work-item, or one CPU task, worth its start


class Problem(msgspec.Struct, frozen=True):
    """One convolution or product as the tiles see it: ``rows`` × ``columns`` results of ``channels`` values each.

    ``depth`` is the length of the reduction, ``channels_in`` its innermost part.  ``registers`` holds what a work-item may
    keep, in vectors of ``lanes``; ``threads`` is the usual size of a work-group.
    """

    rows: int
    columns: int
    channels: int
    depth: int
    channels_in: int
    lanes: int
    registers: int = VECTOR_REGISTERS
    threads: int = 1

    @property
    def blocks(self) -> int:
        return self.channels // self.lanes


class Tiles(msgspec.Struct, frozen=True):
    """``columns``, ``blocks``: the register tile.  ``unroll``: steps of the reduction written out.  ``rows``: rows of results
    per work-item.  ``weights_first``: 1 if the outermost loop goes over blocks of channels (their weights stay in
    cache), 0 if over rows (their inputs do).  ``threads``: work-items per group, 1 on a CPU that plays a GPU."""

    columns: int
    blocks: int
    unroll: int = 1
    rows: int = 1
    weights_first: int = 1
    threads: int = 1


KNOBS = Tiles.__struct_fields__


def cycles(problem: Problem, columns: int, blocks: int) -> float:
    """Estimated cycles for each step of the reduction over the whole problem, on two multiply-add and two load ports."""
    results = columns * blocks
    if results + blocks + 1 > problem.registers:
        return float("inf")
    step = max(results, columns + blocks, FMA_IN_FLIGHT) / 2
    if 4 * problem.lanes * blocks * problem.depth > NEAR_CACHE_BYTES:
        step = max(step, FAR_LOAD * blocks)  # the weights come from the second-level cache at each step
    tiles = -(-problem.columns // columns) * (problem.blocks // blocks) * problem.rows
    # A tail costs a wider copy of the input; a step has some cost of its own.
    tail = 1.03 if problem.columns % columns else 1.0
    return tiles * (step + 0.5) * tail


def candidates(problem: Problem, limit: int) -> list[tuple[int, int]]:
    """The ``limit`` most promising (columns, blocks), best first."""
    pairs = [
        (columns, blocks)
        for blocks in _divisors(problem.blocks)
        if blocks <= 8
        for columns in range(1, min(problem.columns, problem.registers - 2) + 1)
        if cycles(problem, columns, blocks) < float("inf")
    ]
    pairs.sort(key=lambda pair: (cycles(problem, *pair), pair[0] + pair[1], -pair[1]))
    return pairs[:limit]


def choose(problem: Problem) -> Tiles:
    """The default tiles of ``problem``."""
    columns, blocks = candidates(problem, 1)[0]
    return Tiles(
        columns=columns,
        blocks=blocks,
        unroll=1,
        rows=_rows(problem, blocks) if problem.threads == 1 else 1,
        weights_first=weights_first(problem, blocks),
        threads=problem.threads,
    )


def weights_first(problem: Problem, blocks: int) -> int:
    """1 where reading the input once for each group of blocks costs less than reading the weights once for each row."""
    weights = 4 * problem.depth * problem.channels
    inputs = 4 * problem.channels_in * problem.rows * problem.columns
    by_blocks = inputs * (problem.blocks // blocks)
    by_rows = weights * problem.rows * (0.25 if weights <= CACHE_BYTES else 1.0)
    return int(by_blocks <= by_rows)


def fit(tiles: Tiles, problem: Problem) -> Tiles:
    """``tiles``, perhaps measured on a larger operator, made legal for ``problem``.

    A register tile that does not fit keeps too few results in flight, so an estimated one takes its place.
    """
    columns, blocks = tiles.columns, tiles.blocks
    if problem.blocks % blocks or columns > problem.columns:
        columns, blocks = candidates(problem, 1)[0]
    return Tiles(
        columns=columns,
        blocks=blocks,
        unroll=largest_divisor(problem.channels_in, tiles.unroll),
        rows=largest_divisor(problem.rows, tiles.rows),
        weights_first=tiles.weights_first,
        threads=max(1, tiles.threads),
    )


def from_knobs(values: Mapping[str, int]) -> Tiles:
    return Tiles(**{name: int(values[name]) for name in KNOBS if name in values})


def largest_divisor(extent: int, at_most: int) -> int:
    return max(d for d in _divisors(extent) if d <= max(1, at_most))


def _rows(problem: Problem, blocks: int) -> int:
    work = problem.columns * blocks * problem.depth * problem.lanes
    return largest_divisor(problem.rows, min(8, max(1, TARGET_WORK // (4 * max(1, work)))))


def _divisors(extent: int) -> list[int]:
    return [d for d in range(1, extent + 1) if extent % d == 0] if extent > 0 else [1]
