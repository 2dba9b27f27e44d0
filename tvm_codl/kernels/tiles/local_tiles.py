"""How a convolution or product is cut for a GPU whose groups have fast local memory, and a model that picks a cut.

A group computes a tile of ``columns × rows`` positions by some channels.  Step by step it brings ``step`` input channels of
what the tile reads, and their weights, into local memory; each work-item adds what they give to the results that it
keeps in registers.  Where positions and channels are too few for the device, the input channels are cut into ``parts``,
each with groups of its own, and a second kernel adds the parts up.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.tiles.vectors import Integers, Size

LANES = 4

# A work-item's vectors: columns, rows, blocks of four channels.
_ITEMS = (
    *((1, 1, 1), (2, 1, 1), (2, 2, 1), (4, 1, 1), (4, 1, 2), (4, 2, 1), (4, 2, 2)),
    *((5, 1, 1), (7, 1, 1), (7, 1, 2), (7, 2, 1), (8, 1, 1), (8, 1, 2)),
)
# A group's work-items: columns, rows.
_SPREADS = (
    *((1, 1), (1, 2), (1, 4), (1, 7), (1, 8), (1, 16), (2, 1), (2, 2), (2, 4), (2, 7), (2, 8), (4, 1), (4, 2), (4, 4)),
    *((7, 1), (7, 2), (4, 8), (8, 1), (8, 4), (16, 1), (32, 1)),
)
_CHANNELS = (4, 8, 16, 32, 64)
# Input channels of a step: for windows, for single positions, and where a step of those has no room.
_STEPS, _SINGLE_STEPS, _LEAST_STEP = (8, 16), (16, 32), 4
_PARTS = (1, 2, 4, 8, 16, 32)
#: Work-items in a group.
_FEWEST, _MOST = 32, 256
#: Bytes of local memory that a group may take so that several fit a compute unit.
_ROOM = 24 * 1024

# The model's constants, fitted to 60 kernels on an NVIDIA H200 (mean error 12 %): instructions that a load from local
# memory and one from memory stand for; cycles that a step takes at least, and those of an instruction of a lone
# warp; microseconds to start a kernel, and to add parts up.
_LOCAL_LOAD, _LOAD = 9.1, 52.7
_STEP_CYCLES, _LONE_CYCLES = 44.0, 1.15
_START_US, _SUM_US = 5.4, 5.5
_MHZ, _SUM_GB, _MEMORY_GB = 1980.0, 2000.0, 4200.0
#: What one compute unit issues in a cycle, and holds: warps' instructions, registers, bytes, work-items, groups.
_ISSUE, _FILE, _LOCAL, _ITEMS_HELD, _GROUPS_HELD = 4.0, 65536, 220 * 1024, 2048, 32


class LocalProblem(msgspec.Struct, frozen=True):
    """``batch`` × ``rows`` × ``columns`` results of ``channels`` values, each from a window of ``channels_in`` values.

    A product has one row and a window of 1.
    """

    batch: int
    rows: int
    columns: int
    channels: int
    channels_in: int
    kernel_h: int = 1
    kernel_w: int = 1
    stride: int = 1
    stride_w: int = 1

    @property
    def vectors(self) -> bool:
        """Whether inputs lie in whole vectors."""
        return self.channels_in % LANES == 0


class LocalTiles(msgspec.Struct, frozen=True):
    """``columns``, ``rows``, ``blocks``: what a work-item computes, in vectors of four channels.  ``across``, ``down``,
    ``channels``: work-items of a group along columns, rows and channels.  ``step``: input channels that are in local memory
    at once.  ``parts`` of the input channels.  As a word: ``7x1x2-2x4x16-8-1``."""

    columns: int
    rows: int
    blocks: int
    across: int
    down: int
    channels: int
    step: int
    parts: int = 1

    @property
    def threads(self) -> int:
        return self.across * self.down * self.channels

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows, columns and channels of a group."""
        return self.rows * self.down, self.columns * self.across, self.blocks * self.channels * LANES

    def word(self) -> str:
        """The value of AutoTVM's knob."""
        item, group = (self.columns, self.rows, self.blocks), (self.across, self.down, self.channels)
        return f"{'x'.join(map(str, item))}-{'x'.join(map(str, group))}-{self.step}-{self.parts}"

    @classmethod
    def parse(cls, word: str) -> LocalTiles:
        """The tiles that :meth:`word` wrote.  Raises :class:`ValueError` for any other text."""
        item, group, step, parts = word.split("-")
        columns, rows, blocks = map(int, item.split("x"))
        across, down, channels = map(int, group.split("x"))
        return cls(columns, rows, blocks, across, down, channels, int(step), int(parts))


def window_rows_at_once(problem: LocalProblem, tiles: LocalTiles, local_memory: int) -> int:
    """Rows of the window whose weights are in local memory together: all, or one where they have no room."""
    return int(_rows_at_once(problem, tiles.step, tiles.tile[2], local_memory))


def _rows_at_once(problem: LocalProblem, step: Size, channels: Size, local_memory: int) -> Integers:
    """As :func:`window_rows_at_once`, of tiles of ``channels`` that bring ``step`` input channels."""
    whole = 4 * problem.kernel_h * problem.kernel_w * step * channels
    return np.where(whole <= min(_ROOM, local_memory // 2), problem.kernel_h, 1)


def fit(tiles: LocalTiles, problem: LocalProblem) -> LocalTiles:
    """``tiles``, perhaps measured on a larger operator, for ``problem``: no step, part or row that has nothing to do."""
    step = min(tiles.step, problem.channels_in)
    if problem.rows == 1:
        tiles = msgspec.structs.replace(tiles, rows=1, down=1)
    return msgspec.structs.replace(tiles, step=step, parts=min(tiles.parts, -(-problem.channels_in // step)))


def _fit_all(many: tuple[Integers, ...], problem: LocalProblem) -> tuple[Integers, ...]:
    """As :func:`fit`, of tiles of which those with too many rows are left out later."""
    *others, step, parts = many
    step = np.minimum(step, problem.channels_in)
    return (*others, step, np.minimum(parts, -(-problem.channels_in // step)))


@lru_cache(maxsize=4096)
def candidates(problem: LocalProblem, gpu: Gpu, limit: int) -> tuple[LocalTiles, ...]:
    """The ``limit`` most promising tiles, best first."""
    usual = _STEPS if problem.kernel_h * problem.kernel_w > 1 else _SINGLE_STEPS
    for steps in (usual, (_LEAST_STEP,)):
        many = _fit_all(_enumerate(gpu.max_group, gpu.registers, steps), problem)
        cost = microseconds(problem, many, gpu)
        order = np.argsort(cost, kind="stable")[: 8 * limit]  # some are the same once they fit
        if np.isfinite(cost[order[0]]):
            break
    found = (LocalTiles(*(int(a[i]) for a in many)) for i in order if np.isfinite(cost[i]))
    return tuple(dict.fromkeys(found))[:limit]


def choose(problem: LocalProblem, gpu: Gpu) -> LocalTiles:
    """The estimate."""
    return candidates(problem, gpu, 1)[0]


def estimate_us(problem: LocalProblem, tiles: LocalTiles, gpu: Gpu) -> float:
    """Microseconds that the model expects of one kernel, adding up parts included."""
    one = tuple(np.array([getattr(tiles, name)]) for name in LocalTiles.__struct_fields__)
    return float(microseconds(problem, one, gpu, legal=False)[0])


@lru_cache(maxsize=16)
def _enumerate(max_group: int, registers: int, steps: tuple[int, ...]) -> tuple[Integers, ...]:
    """All tiles that a device allows, one array a field."""
    found = [
        (*item, *spread, channels, step, parts)
        for item in _ITEMS
        if 4 * item[0] * item[1] * item[2] <= registers // 2
        for spread in _SPREADS
        for channels in _CHANNELS
        if _FEWEST <= spread[0] * spread[1] * channels <= min(_MOST, max_group)
        for step in steps
        for parts in _PARTS
    ]
    return tuple(np.array(column, dtype=np.int64) for column in zip(*found, strict=True))


def microseconds(
    problem: LocalProblem, many: tuple[Integers, ...], gpu: Gpu, legal: bool = True
) -> NDArray[np.float64]:
    """The model's time of each of ``many`` tiles; with ``legal`` infinite for those that do not fit the problem.

    A step of a group takes as long as its instructions take to issue, among the groups that share a compute unit, or as
    one warp takes alone; groups that find no unit free wait for the next round.
    """
    columns, rows, blocks, across, down, channels, step, parts = many
    p = problem
    tile_y, tile_x, tile_c = rows * down, columns * across, blocks * channels * LANES
    threads = across * down * channels
    warps = -(-threads // gpu.warp)
    tiles = -(-p.rows // tile_y) * -(-p.columns // tile_x) * -(-p.channels // tile_c) * p.batch
    steps = -(-p.channels_in // step)
    groups = tiles * parts
    at_once = _rows_at_once(p, step, tile_c, gpu.local_memory)
    loads = p.kernel_h // at_once
    high = np.where(p.kernel_h > 1, (tile_y - 1) * p.stride + at_once, tile_y)
    wide = (tile_x - 1) * p.stride_w + p.kernel_w if p.kernel_w > 1 else tile_x
    data, weights = high * wide * step, at_once * p.kernel_w * step * tile_c
    local = 4 * (data + weights)
    results = 4 * columns * rows * blocks
    registers = results + 4 * columns * rows + 40
    held = np.minimum(np.minimum(_GROUPS_HELD, _FILE // (registers * threads)), _LOCAL // (local + 1024))
    held = np.maximum(np.minimum(held, _ITEMS_HELD // threads), 1)
    sharing = np.minimum(-(-groups // gpu.units), held)
    wholly = p.vectors & (step % LANES == 0)
    window = at_once * p.kernel_w
    from_local = window * (-(-step // LANES) * columns * rows + step * blocks)
    from_memory = -(-data // (np.where(wholly, LANES, 1) * threads)) + -(-weights // (LANES * threads))
    instructions = window * step * results + _LOCAL_LOAD * from_local + _LOAD * from_memory
    cycles = np.maximum(sharing * warps * instructions / _ISSUE, _STEP_CYCLES + _LONE_CYCLES * instructions)
    rounds = groups / (gpu.units * sharing)
    rounds = np.where(rounds <= 3, np.ceil(rounds), rounds)
    added = np.where(parts > 1, _SUM_US + 4e-3 * parts * p.batch * p.rows * p.columns * p.channels / _SUM_GB, 0.0)
    moved = (
        p.batch * (p.rows * p.columns * (p.channels + p.channels_in))
        + p.kernel_h * p.kernel_w * p.channels_in * p.channels
    )
    computed = rounds * -(-steps // parts) * loads * cycles / _MHZ
    time = np.maximum(computed, 4e-3 * moved / _MEMORY_GB) + _START_US + added
    if not legal:
        return np.asarray(time, dtype=np.float64)
    # A tile wider than what there is leaves work-items idle; one step up is a tail like any other.
    fits = (local <= gpu.local_memory) & (local <= 2 * _ROOM) & (parts <= steps)
    fits &= tile_c < 2 * max(p.channels, _FEWEST * LANES)
    fits &= (tile_x < 2 * p.columns) & (tile_y < 2 * p.rows)
    return np.where(fits, time, np.inf)
