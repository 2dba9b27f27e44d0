"""Work: the terms whose weighted sum is nearly a kernel's time, the weights being a processor's.  The cost model's prior.

Cycles of the inner loop, tiles and work-items started, bytes by operand and by how often they are read, and the copies
that the build adds (padding, packed weights, channels cut off again).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_codl.cost.schedules import CONVOLUTION, NONE, PRODUCT, STRIPS, Schedules
from tvm_codl.cost.table import Rows, Table
from tvm_codl.kernels.tiles import vectors, window
from tvm_codl.kernels.tiles.register_tiles import step_cycles
from tvm_codl.kernels.tiles.strips import PADDINGS

#: The columns of :func:`work`.  ``launches`` are kernels started, ``one`` is constant.
TERMS = (
    *("one", "launches", "mac", "mac_8", "mac_4", "mac_2", "mac_1", "mac_lone", "tiles", "items"),
    *("pack", "weights", "extra", "data", "data_l2", "data_l3", "pad", "pad_l2", "pad_l3", "out", "out_l2", "out_l3"),
    *("slice", "slice_l2", "slice_l3", "weights_near", "weights_far", "data_near", "data_far", "conflict", "fetch"),
    *("inline", "exp", "flops", "scalar", "transform", "transform_l2", "transform_l3"),
)
#: Bytes that the first and the second cache hold of one operand.
_NEAR, _FAR = 32 * 1024, 768 * 1024
#: A first-level cache: addresses this many bytes apart share a set; the lines of a set; the bytes of a line.
SET_BYTES, WAYS, LINE = 4096, 12, 64
#: What a level holds of one operand beside the others.
L2_BYTES, L3_BYTES = 512 * 1024.0, 8 * 1024 * 1024.0
_USED = (
    *("batch", "out_h", "out_w", "out_c", "bytes_in", "bytes_weights", "bytes_out", "bytes_data", "exponentials"),
    "flops",
)
_INLINE, _ITEM, _ROOT = map(PADDINGS.index, ("inline", "item", "root"))


def work(table: Table, schedules: Schedules) -> dict[str, Rows]:
    """Each of :data:`TERMS`, shape (rows,); bytes are in kilobytes, cycles and values in thousands."""
    s = schedules
    n = len(table)
    real = {name: table[name].astype(np.float64) for name in _USED}
    product = s.task == PRODUCT
    tiled = (s.task == CONVOLUTION) | product
    strips, filtered = s.task == STRIPS, s.filtered > 0
    batch = np.where(product, 1.0, np.where(s.task == NONE, 1.0, real["batch"]))
    across = -(-s.columns_out // s.columns)
    groups = np.maximum(-(-(s.channels // s.lanes) // s.blocks), 1)  # a vector may be wider than the channels
    steps = step_cycles(s.columns, s.blocks, s.depth, s.lanes)
    tiles = batch * across * groups * s.rows_out
    mac = np.where(tiled, tiles * s.depth * steps, 0.0)
    strip_vectors = batch * s.rows_out * across * s.columns * np.maximum(s.channels // s.lanes, 1)
    mac = np.where(strips, strip_vectors * s.depth, mac)
    mac = np.where(s.nanoseconds > 0, s.nanoseconds, mac)  # a model of its own
    items = np.where(
        tiled, batch * groups * (s.rows_out / s.rows), np.where(strips, batch * -(-s.rows_out // s.rows), 0.0)
    )
    weights = np.where(tiled, 4.0 * s.depth * s.channels, real["bytes_weights"]) * np.where(filtered, s.rows_out, 1)
    padded, copied = _padding(table, s, real)
    # Weights come again from the smallest cache that holds all that is used in between.
    strip_bytes = 4.0 * s.blocks * s.lanes * s.depth
    held = np.where(s.weights_first == 1, strip_bytes, weights)
    again = np.where(tiled & ~filtered, weights * (batch * s.rows_out * across - 1.0), 0.0)
    data_held = np.where(s.weights_first == 1, real["bytes_data"], 0.0)
    data_again = np.where(tiled & ~filtered & (s.weights_first == 1), (groups - 1.0) * real["bytes_data"], 0.0)
    # Strides wider than the window skip columns of the input.
    reach = np.minimum((s.columns - 1) * table["stride_w"] + table["kernel_w"], s.columns * table["kernel_w"])
    rows_of_tile = np.where(filtered, s.columns, table["kernel_h"] * reach)
    tile_bytes = 4.0 * rows_of_tile * np.where(strips, s.lanes, table["in_c"])
    whole_out = np.where(s.extra > 0, real["bytes_out"] * (s.channels / np.maximum(real["out_c"], 1)), 0.0)
    tiles_of_all = np.where(tiled, tiles, np.where(strips, batch * s.rows_out * across * groups, 0.0))
    # What the transforms leave for the products, and these for them.
    between = np.where(filtered, 4.0 * s.rows_out * s.columns_out * (table["in_c"] + s.channels), 0.0)
    terms = {
        "one": np.ones(n),
        "launches": 1.0 + padded * (~strips | (s.padding == _ROOT)) + s.packs + (s.extra > 0) + 2 * filtered,
        "mac": np.where((s.lanes >= 16) | strips, mac, 0.0),
        **{f"mac_{lanes}": np.where(tiled & (s.lanes == lanes), mac, 0.0) for lanes in (8, 4, 2)},
        "mac_1": np.where(tiled & (s.lanes == 1) & (s.blocks > 1), mac, 0.0),
        "mac_lone": np.where(tiled & (s.lanes == 1) & (s.blocks == 1), mac, 0.0),
        "tiles": tiles_of_all,
        "items": items,
        "pack": np.where(s.packs == 1, weights, 0.0),
        "weights": weights,
        "extra": np.maximum(real["bytes_in"] - real["bytes_data"], 0.0),
        **_levels("data", real["bytes_data"]),
        **_levels("pad", copied),
        **_levels("out", real["bytes_out"]),
        **_levels("slice", whole_out),
        "weights_near": np.where((held > _NEAR) & (held <= _FAR), again, 0.0),
        "weights_far": np.where(held > _FAR, again, 0.0),
        "data_near": np.where(data_held <= _FAR, data_again, 0.0),
        "data_far": np.where(data_held > _FAR, data_again, 0.0),
        "conflict": np.where(tiled, tiles * s.depth * s.columns * _missing(lines_in_a_set(table, s)), 0.0),
        "fetch": np.where(tiled | strips, tiles_of_all * tile_bytes, 0.0),
        "inline": np.where(strips & padded & (s.padding == _INLINE), mac, 0.0),
        "exp": real["exponentials"],
        "flops": np.where(
            tiled | strips, 0.0, real["flops"] / vectors.lanes_for(table["out_c"], 16, vectors.STAGE_WIDTHS)
        ),
        "scalar": np.where((s.task == NONE) & (table["out_c"] % 4 != 0), real["bytes_out"], 0.0),
        **_levels("transform", between),
    }
    return {name: value if name in ("one", "launches") else value / 1e3 for name, value in terms.items()}


def _levels(name: str, size: Rows) -> dict[str, Rows]:
    """Bytes of an operand, and those beyond what the second and the last cache hold of it: each level costs more."""
    return {
        name: size,
        f"{name}_l2": np.maximum(size - L2_BYTES, 0.0),
        f"{name}_l3": np.maximum(size - L3_BYTES, 0.0),
    }


def _missing(lines: Rows) -> Rows:
    """The share of loads that miss the first cache: 0 where a set has ways for all ``lines``."""
    return np.clip((lines - WAYS + 0.5) / 8.0, 0.0, 1.0)


def lines_in_a_set(table: Table, s: Schedules) -> Rows:
    """How many of a tile's input columns meet in one set of the cache.

    Columns a large power of two of bytes apart share few sets; beyond :data:`WAYS` to a set, each step loads them anew.
    """
    apart = 4 * table["in_c"] * np.where(s.task == PRODUCT, 1, table["stride_w"])
    sets = np.maximum(SET_BYTES // np.maximum(np.gcd(apart, SET_BYTES), LINE), 1)
    result: Rows = s.columns / np.minimum(sets, s.columns)
    return result


def _padding(table: Table, s: Schedules, real: dict[str, Rows]) -> tuple[NDArray[np.bool_], Rows]:
    """Whether zeros are put around the input first, and the bytes of that copy."""
    whole = window.whole_tiles(s.columns_out, s.columns)
    rows, filtered = s.rows_out, s.filtered > 0
    if filtered.any():
        of_tiles = (window.whole_tiles(table[name], np.maximum(s.filtered, 1)) for name in ("out_h", "out_w"))
        rows, whole = (np.where(filtered, *pair) for pair in zip(of_tiles, (rows, whole), strict=True))
    need_h = window.reach(rows, table["stride"], table["kernel_h"], table["dilation"])
    need_w = window.reach(whole, table["stride_w"], table["kernel_w"], table["dilation_w"])
    flat = (s.task == CONVOLUTION) & ~filtered & (s.columns_out != table["out_w"])  # positions as one row
    height, width = np.where(flat, 1, table["in_h"]), np.where(flat, s.columns_out, table["in_w"])
    padded = window.padded(height, width, table["pad_top"], table["pad_left"], need_h, need_w)
    needed = padded.needed & ((s.task == CONVOLUTION) | (s.task == STRIPS))
    copied = np.where(needed, 4.0 * real["batch"] * padded.height * padded.width * table["in_c"], 0.0)
    # A depthwise convolution may copy what each strip reads, or ask at each load.
    strips = real["batch"] * -(-s.rows_out // s.rows) * (whole // s.columns)
    read_h = window.reach(s.rows, table["stride"], table["kernel_h"], table["dilation"])
    read_w = window.reach(s.columns, table["stride_w"], table["kernel_w"], table["dilation_w"])
    by_strip = np.where(s.padding == _ITEM, 4.0 * strips * read_h * read_w * s.channels, 0.0)
    copied = np.where((s.task == STRIPS) & needed & (s.padding != _ROOT), by_strip, copied)
    tail = (s.task == PRODUCT) & (whole != s.columns_out)
    return needed | tail, np.where(tail, 4.0 * whole * table["in_c"], copied)
