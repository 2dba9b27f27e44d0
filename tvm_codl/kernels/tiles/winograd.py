"""Winograd's minimal filtering of 3 x 3 windows: its matrices, the size of its tiles, and where it pays.  Imports no TVM.

A tile of ``m`` x ``m`` results takes (m + 2)² products in place of 9 m²: results are A'((G g G') * (B' d B))A, of the window's
weights g and the (m + 2)² values d that the tile reads (Lavin and Gray, CVPR 2016).  Over many channels the
products are (m + 2)² matrix products, whose weights are transformed once, while the library is built.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.kernels.tiles.register_tiles import Problem, candidates, cycles
from tvm_codl.kernels.tiles.vectors import Booleans, Integers, Size

WINDOW = 3
#: A Relay variable whose name begins so stands for weights that are constants once the network is built.
STAND_IN = "codl_constant"
#: Results of a tile along each axis, by falling size of the weights that it needs.
SIZES = (4, 2)
Matrix = NDArray[np.float64]

#: By ``m``: A, B and G, by the points 0, -1, 1 (and 1/2, -2), and infinity.
_A: dict[int, Matrix] = {
    2: np.array([[1, 0], [1, -1], [1, 1], [0, 1]], np.float64),
    4: np.array([[1, 0, 0, 0], [1, -1, 1, -1], [1, 1, 1, 1], [1, 0.5, 0.25, 0.125], [1, -2, 4, -8], [0, 0, 0, 1]]),
}
_B: dict[int, Matrix] = {
    2: np.array([[1, 0, 0, 0], [0, -1, 1, -1], [-1, 1, 1, 0], [0, 0, 0, 1]], np.float64),
    4: np.array(
        [
            *([1, 0, 0, 0, 0, 0], [-1.5, 1, -1, -2, 0.5, 1], [-2, -2.5, 0.5, -1, -1, -1.5]),
            *([1.5, 0.5, 2.5, 2, -0.5, -2], [1, 1, 1, 1, 1, 1.5], [0, 0, 0, 0, 0, 1]),
        ]
    ),
}
_G: dict[int, Matrix] = {
    2: np.array([[1, 0, 0], [0.5, -0.5, 0.5], [0.5, 0.5, 0.5], [0, 0, 1]]),
    4: np.array(
        [
            *([1, 0, 0], [-1 / 3, 1 / 3, -1 / 3], [1 / 3, 1 / 3, 1 / 3]),
            *([-16 / 15, -8 / 15, -4 / 15], [1 / 15, -2 / 15, 4 / 15], [0, 0, 1]),
        ]
    ),
}

#: Cycles, measured on cores with AVX2: of a vector's multiply-add, of a vector that the transforms make, and of a byte
#: of weights that comes from memory.
_PRODUCT, _TRANSFORM, _BYTE = 0.62, 5.8, 0.2
#: It must take so much of the direct kernel's time at most.  Larger tiles, with more weights, must gain as much.
_GAIN = 0.87
#: Bytes between the transforms that a CPU's second cache holds, and that a GPU's kernels may leave in memory.
_NEAR, _MOST = 768 * 1024, 32 * 1024 * 1024


def matrices(m: int) -> tuple[Matrix, Matrix]:
    """A (m + 2, m), for results, and B (m + 2, m + 2), for what a tile reads."""
    return _A[m], _B[m]


def transformed(weights: NDArray[np.float32], m: int, lanes: int) -> NDArray[np.float32]:
    """``weights`` (3, 3, IC, OC) as ((m + 2)², OC / lanes, IC, lanes)."""
    channels_in, channels = weights.shape[2:]
    both = np.kron(_G[m], _G[m])
    made = np.empty((len(both), channels // lanes, channels_in, lanes), np.float32)
    # By blocks of channels: all of them at once would take eight times the memory, and most of the time to reach it.  By einsum,
    # which has one thread: those of BLAS in two builds at once took the cores from each other, for seconds.
    for block in range(channels // lanes):
        taps = weights[..., block * lanes : (block + 1) * lanes].reshape(WINDOW**2, -1).astype(np.float64)
        made[:, block] = np.einsum("pi,in->pn", both, taps).reshape(-1, channels_in, lanes)
    return made


class Convolutions(msgspec.Struct, frozen=True):
    """Convolutions of one picture of 3 x 3 windows without stride or dilation, ``lanes`` dividing ``channels``; integers or
    arrays of one shape."""

    rows: Size
    columns: Size
    channels_in: Size
    channels: Size
    lanes: Size

    def tiles(self, m: Size) -> Any:
        return -(-self.rows // m) * -(-self.columns // m)

    def between(self, m: Size) -> Any:
        """Bytes between the transforms: what the products read and write."""
        return 4 * (m + 2) ** 2 * self.tiles(m) * (self.channels_in + self.channels)

    def weights(self, m: Size) -> Any:
        """Bytes of transformed weights."""
        return 4 * (m + 2) ** 2 * self.channels_in * self.channels

    def cycles(self, m: Size) -> Any:
        points, tiles = (m + 2) ** 2, self.tiles(m)
        vectors = (self.channels_in + self.channels) / self.lanes
        products = tiles * self.channels_in * self.channels / self.lanes
        return points * (_PRODUCT * products + _TRANSFORM * tiles * vectors) + _BYTE * self.weights(m)

    def direct_cycles(self) -> Any:
        """Of a kernel that multiplies each value with its weights; those that the second cache holds cost it nothing more."""
        weights = WINDOW * WINDOW * self.channels_in * self.channels
        products = self.rows * self.columns * weights / self.lanes
        return _PRODUCT * products + _BYTE * np.maximum(4 * weights - _NEAR, 0)


def size_of(convolutions: Convolutions, gpu: bool) -> Integers:
    """The tile's size ``m``; 0 where the direct kernel is expected to be as fast."""
    limit, size = _GAIN * convolutions.direct_cycles(), np.zeros_like(convolutions.rows)
    legal: Booleans = (convolutions.channels_in % 4 == 0) & (convolutions.lanes >= 4)
    for m in reversed(SIZES):
        cost = convolutions.cycles(m)
        better = legal & (cost < limit) & (not gpu or convolutions.between(m) <= _MOST)
        size, limit = np.where(better, m, size), np.where(better, _GAIN * cost, limit)
    return size


class Cut(msgspec.Struct, frozen=True):
    """How one convolution is computed: ``group`` rows of tiles at a time, 0 for all; ``columns`` × ``blocks`` is the register
    tile of the products, ``columns`` of ``tiles``, those of all rows or of a group."""

    m: int
    across: int
    down: int
    group: int
    tiles: int
    columns: int
    blocks: int

    @property
    def rows(self) -> int:
        """Of tiles, with those that fill the last group or register tile."""
        return -(-self.down // self.group) * self.group if self.group else -(-self.tiles // self.across)


def products(one: Convolutions, m: Size, like: Problem) -> Problem:
    """The matrix products, as the register tiles see them; ``like`` has what is of the target."""
    return msgspec.structs.replace(
        like, rows=(m + 2) ** 2, columns=one.tiles(m), channels=one.channels, depth=one.channels_in,
        channels_in=one.channels_in, lanes=one.lanes,
    )  # fmt: skip


def cut(one: Convolutions, m: int, like: Problem, gpu: bool) -> Cut:
    """For a CPU as many rows of tiles at a time as its cache holds, or as make loading the weights worth while."""
    across, down = -(-int(one.columns) // m), -(-int(one.rows) // m)
    problem, room = products(one, m, like), max(_NEAR, int(one.weights(m)))
    if not gpu and one.between(m) > room:
        most = max(1, room * down // int(one.between(m)))
        fits = [
            (-(-down // group) * expected, -group, blocks, columns)
            for group in range(max(1, most // 2), most + 1)
            for expected, blocks, columns in _register_tiles(problem, group * across)
            if group * across % columns == 0
        ]
        if fits:
            _, group, blocks, columns = min(fits)
            return Cut(m, across, down, -group, -group * across, columns, blocks)
    _, blocks, columns = min(_register_tiles(problem, across * down))
    return Cut(m, across, down, 0, -(-(across * down) // columns) * columns, columns, blocks)


def _register_tiles(problem: Problem, tiles: int) -> list[tuple[float, int, int]]:
    """Expected cycles, blocks and columns: of equals, fewer blocks load fewer weights, which are further away."""
    part = msgspec.structs.replace(problem, columns=tiles)
    return [(float(cycles(part, columns, blocks)), blocks, columns) for columns, blocks in candidates(part, 16)]
