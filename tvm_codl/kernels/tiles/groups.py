"""Work-groups of three dimensions."""

from __future__ import annotations

from tvm_codl.kernels.gpu import Gpu

#: Work-items of a group, where the problem divides so: a few warps hide each other's loads.
USUAL = 128
#: Neighbours by channels that share inputs and read adjacent weights: more of them share less of anything else.
ALONG = 16

#: By channels, by columns and by rows.
Group = tuple[int, int, int]


def group_of(items: Group, gpu: Gpu) -> Group:
    """The group for so many work-items by dimension, whose product ``gpu`` allows.

    Groups divide the grid, so that no work-item is idle; of these the fullest warps win, then the usual size, then
    neighbours along the channels.  A grid that divides into less than a warp gets groups with idle work-items.
    """
    channels, columns, rows = items
    warp, most = gpu.warp, max(gpu.max_group, 1)

    def worth(group: Group) -> tuple[float, ...]:
        x, y, z = group
        size = x * y * z
        filled = size / (-(-size // warp) * warp)
        return (round(filled, 1), -abs(min(x, ALONG) - ALONG), size if size <= USUAL else USUAL / size, y)

    whole = [
        (x, y, z)
        for x in _divisors(channels, most)
        for y in _divisors(columns, most // x)
        for z in _divisors(rows, most // (x * y))
    ]
    best = max(whole, key=worth)
    if best[0] * best[1] * best[2] >= min(warp, channels * columns * rows):
        return best
    x = min(channels, warp, most)
    y = min(columns, -(-warp // x), most // x)
    return x, y, min(rows, -(-warp // (x * y)), most // (x * y))


def _divisors(extent: int, at_most: int) -> list[int]:
    return [d for d in range(1, min(extent, at_most) + 1) if extent % d == 0]
