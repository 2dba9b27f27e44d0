"""How large a register tile is, and a model that picks one where nothing was measured.

The inner kernel of a convolution or matrix product keeps ``columns × blocks`` vectors of results in registers: that
many output columns by that many blocks of ``lanes`` channels.  Each step of the reduction loads ``blocks`` vectors of
weights and broadcasts ``columns`` values.  Knobs are plain integers, not factors of an extent, so that a piece of an
operator can use the whole operator's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from tvm_codl.kernels.gpu import PHONES, Gpu
from tvm_codl.kernels.tiles.vectors import Booleans, Integers, Size, largest_divisor

# Latency of a fused multiply-add in cycles times the number issued in a cycle: fewer accumulators than this stall.
FMA_IN_FLIGHT = 8
VECTOR_REGISTERS = 32
NEAR_CACHE_BYTES = 32 * 1024
FAR_LOAD = 2.0  # cycles for a vector from the second-level cache
CACHE_BYTES = 384 * 1024
TARGET_WORK = 1 << 20  # multiply-adds that make one GPU work-item, or one CPU task, worth its start
MOST_BLOCKS = 8

# On a phone's GPU, by its compilers (benchmarks/isa.py) and Arm's and Qualcomm's guides:
STEP = 4  # input channels a step, and float32 of a vector
PHONE_COLUMNS, PHONE_BLOCKS = 16, 4  # of a tile, at most
SHORT, AHEAD = 36, 3  # the longest reduction that is unrolled whole, and vectors of inputs in registers there
LOAD = 4  # cycles of a vector's load, in which as many vectors are multiplied and added
STARTED = 4  # warps of a core that hide each other's loads
#: Taps of a window's row that share inputs in registers, and columns of such a tile at most.
SHARED, SHARING_COLUMNS = 3, 4


class Problem(msgspec.Struct, frozen=True):
    """Convolutions or products as the tiles see them: ``rows`` × ``columns`` results of ``channels`` values each.

    ``depth`` is the length of the reduction, ``channels_in`` its innermost part; ``lanes`` divides ``channels``.  ``gpu``
    runs them; a CPU is one that plays a GPU.  ``shared``: the taps that share a tile's inputs (:func:`shared_taps`).
    ``vectors``: those that a CPU's registers hold.  Sizes are integers or arrays of one shape.
    """

    rows: Size
    columns: Size
    channels: Size
    depth: Size
    channels_in: Size
    lanes: Size
    gpu: Gpu = Gpu()
    shared: Size = 1
    vectors: int = VECTOR_REGISTERS

    @property
    def threads(self) -> int:
        """The usual size of a work-group."""
        return self.gpu.group

    @property
    def on_phone(self) -> bool:
        return self.gpu.kind in PHONES

    @property
    def blocks(self) -> Any:
        return self.channels // self.lanes

    @property
    def registers(self) -> int:
        """Vectors that a work-item may keep: a real GPU has fewer for each, and wants many of them."""
        return self.vectors if self.threads == 1 else VECTOR_REGISTERS // 2

    def holds(self, columns: Size, blocks: Size, inputs: int = 1) -> Any:
        """Whether the registers do: on a phone, for the results, a step's weights and ``inputs`` vectors of inputs."""
        if self.on_phone:
            return STEP * (columns * blocks + STEP * blocks + inputs) <= self.gpu.registers
        taken = (columns + 1) * blocks + 1
        if self.threads == 1 and self.registers <= VECTOR_REGISTERS // 2:
            # AVX2 broadcasts to a register.  Where only one result needs it LLVM adds that one there, and runs out of them.
            taken = np.where(np.asarray(blocks) == 1, 2 * (columns + 1), taken)
        return taken <= max(self.registers, 4)

    def fits(self, columns: Size, blocks: Size) -> Any:
        """Whether a tile divides the channels and is no wider than the results, and than what shares its inputs."""
        widest = np.where(np.asarray(self.shared) > 1, np.minimum(self.columns, SHARING_COLUMNS), self.columns)
        return (self.blocks % blocks == 0) & (columns <= widest)


class Tiles(msgspec.Struct, frozen=True):
    """``columns``, ``blocks``: the register tile.  ``unroll``: steps of the reduction written out.  ``rows``: rows of results
    per work-item.  ``weights_first``: 1 if the outermost loop goes over blocks of channels (their weights stay in
    cache), 0 if over rows (their inputs do).  ``threads``: work-items per group, 1 on a CPU that plays a GPU."""

    columns: Size
    blocks: Size
    unroll: Size = 1
    rows: Size = 1
    weights_first: Size = 1
    threads: Size = 1


KNOBS = Tiles.__struct_fields__


def vector_registers(lanes: int) -> int:
    """How many vectors a CPU with vectors of ``lanes`` float32 has: AVX2's are eight wide; Arm and AVX-512 have 32."""
    return VECTOR_REGISTERS // 2 if lanes == 8 else VECTOR_REGISTERS


def shared_taps(gpu: Gpu, kernel: Size, stride: Size, dilation: Size) -> Any:
    """How many taps of a row share inputs in registers: Adreno has no cache that would make reading them again cheap."""
    sharing = (kernel == SHARED) & (stride == 1) & (dilation == 1) & (gpu.kind == "adreno")
    return np.where(sharing, SHARED, 1)


def step_cycles(columns: Size, blocks: Size, depth: Size, lanes: Size) -> Any:
    """Estimated cycles of one step of the reduction in one tile, on two multiply-add and two load ports."""
    step = np.maximum(np.maximum(columns * blocks, columns + blocks), FMA_IN_FLIGHT) / 2
    # Weights beyond the near cache come from the second-level cache at each step.
    far = 4 * lanes * blocks * depth > NEAR_CACHE_BYTES
    return np.where(far, np.maximum(step, FAR_LOAD * blocks), step) + 0.5  # a step has some cost of its own


def cycles(problem: Problem, columns: Size, blocks: Size) -> Any:
    """Estimated cycles for each step of the reduction over the whole problem."""
    if problem.on_phone:
        return _phone_cycles(problem, columns, blocks)
    tiles = -(-problem.columns // columns) * (problem.blocks // blocks) * problem.rows
    tail = np.where(problem.columns % columns, 1.03, 1.0)  # a wider copy of the input
    return tiles * step_cycles(columns, blocks, problem.depth, problem.lanes) * tail


def _phone_cycles(problem: Problem, columns: Size, blocks: Size) -> Any:
    """The same on a phone's GPU, which too few work-items do not fill."""
    items = -(-problem.columns // columns) * (problem.blocks // blocks) * problem.rows
    inputs = (columns + problem.shared - 1) / problem.shared
    step = np.maximum(STEP * columns * blocks, LOAD * (inputs + STEP * blocks)) + LOAD
    tail = np.where(problem.columns % columns, 1.1, 1.0)  # a copy of the input
    return np.maximum(items, STARTED * problem.gpu.units * problem.gpu.warp) * step * tail


def candidates(problem: Problem, limit: int) -> list[tuple[int, int]]:
    """The ``limit`` most promising (columns, blocks) of one problem, best first."""
    costs, columns, blocks = _costs(problem)
    order = np.argsort(costs[0], kind="stable")[:limit]
    return [(int(columns[i]), int(blocks[i])) for i in order if np.isfinite(costs[0, i])]


@lru_cache
def _tiles(gpu: Gpu, registers: int = VECTOR_REGISTERS) -> tuple[Integers, Integers]:
    """Columns and blocks of the tiles that fit the registers; of two that cost the same the first is better."""
    anything = Problem(1, 1, 1, 1, 1, 1, gpu, vectors=registers)
    most = (PHONE_COLUMNS + 1, PHONE_BLOCKS) if anything.on_phone else (anything.registers, MOST_BLOCKS)
    columns, blocks = (a.ravel() for a in np.mgrid[1 : most[0], 1 : most[1] + 1])
    order = np.lexsort((-blocks, columns + blocks))
    order = order[anything.holds(columns, blocks)[order]]
    return columns[order], blocks[order]


def _costs(problem: Problem) -> tuple[Any, Integers, Integers]:
    """Cycles of shape (problems, tiles), infinite where a tile is illegal, and the tiles."""
    columns, blocks = _tiles(problem.gpu, problem.vectors)
    names = ("rows", "columns", "channels", "depth", "lanes", "shared")
    each = {n: np.atleast_1d(getattr(problem, n))[:, None] for n in names}
    many = Problem(**each, channels_in=1, gpu=problem.gpu, vectors=problem.vectors)
    legal = many.fits(columns, blocks)
    if problem.on_phone:
        # A compiler unrolls so short a reduction, such as a 3 x 3 window of a picture, and loads inputs ahead.
        legal &= (many.depth > SHORT) | problem.holds(columns, blocks, AHEAD)
    return np.where(legal, cycles(many, columns, blocks), np.inf), columns, blocks


def _best(problem: Problem, where: Booleans) -> tuple[Integers, Integers]:
    """Columns and blocks of the best tile; ones where it is not asked for.  Only a phone asks for the number of rows."""
    rows = problem.rows if problem.on_phone else np.ones_like(problem.columns)
    asked = [
        np.broadcast_to(a, np.shape(where)).ravel()[np.ravel(where)]
        for a in (rows, problem.columns, problem.channels, problem.depth, problem.lanes, problem.shared)
    ]
    result = np.ones((2, *np.shape(where)), dtype=np.int64)
    if asked[0].size:
        distinct, place = np.unique(np.stack(asked), axis=1, return_inverse=True)
        rows, columns, channels, depth, lanes, shared = distinct
        costs, *tiles = _costs(Problem(rows, columns, channels, depth, 1, lanes, problem.gpu, shared, problem.vectors))
        result[:, where] = np.stack(tiles)[:, np.argmin(costs, axis=1)[place.ravel()]]
    return result[0], result[1]


def choose(problem: Problem) -> Tiles:
    """The default tiles of ``problem``."""
    shape = np.broadcast_shapes(*(np.shape(getattr(problem, name)) for name in ("rows", "columns", "channels")))
    return fit(Tiles(0, 0), problem, np.zeros(shape, dtype=np.bool_))


def fit(tuned: Tiles, problem: Problem, is_tuned: Any = np.True_) -> Tiles:
    """``tuned``, perhaps measured on a larger operator, made legal for ``problem``; an estimate where not ``is_tuned``.

    A register tile that does not fit keeps too few results in flight, so an estimated one takes its place.
    """
    fits = is_tuned & problem.fits(tuned.columns, np.maximum(tuned.blocks, 1))
    columns, blocks = _best(problem, ~fits)
    columns, blocks = np.where(fits, tuned.columns, columns), np.where(fits, tuned.blocks, blocks)
    if problem.on_phone:
        one = np.ones_like(columns)
        return Tiles(columns, blocks, one, one, one, one * problem.threads)
    return Tiles(
        columns=columns,
        blocks=blocks,
        unroll=np.where(is_tuned, largest_divisor(problem.channels_in, np.where(is_tuned, tuned.unroll, 1)), 1),
        rows=largest_divisor(problem.rows, np.where(is_tuned, tuned.rows, _rows(problem, blocks))),
        weights_first=np.where(is_tuned, tuned.weights_first, _weights_first(problem, columns, blocks)),
        threads=np.where(is_tuned, np.maximum(tuned.threads, 1), problem.threads),
    )


def _rows(problem: Problem, blocks: Size) -> Any:
    """Most rows per work-item."""
    if problem.threads > 1:
        return np.ones_like(blocks)
    work = np.maximum(problem.columns * blocks * problem.depth * problem.lanes, 1)
    return np.clip(TARGET_WORK // (4 * work), 1, 8)


def _weights_first(problem: Problem, columns: Size, blocks: Size) -> Any:
    """True where reading the input once for each group of blocks costs less than reading the weights once for each row, or
    for each tile of a product's one row."""
    weights = 4 * problem.depth * problem.channels
    inputs = 4 * problem.channels_in * problem.rows * problem.columns
    times = np.where(problem.rows == 1, -(-problem.columns // columns), problem.rows)
    by_rows = weights * times * np.where(weights <= CACHE_BYTES, 0.25, 1.0)
    return inputs * (problem.blocks // blocks) <= by_rows
