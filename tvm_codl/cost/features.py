"""Features: a workload, the schedule that will run it and the device as a row of numbers that a regression can use.

Sizes and work are logarithms, so that a tree's threshold is a ratio.  Latency has steps where a tile, a vector or a
cache fills up: the row holds the tile chosen for this piece and how full the last one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.cost.device import COLUMNS, DeviceFacts
from tvm_codl.cost.schedules import NONE, Scheduler, Schedules
from tvm_codl.cost.table import Rows, Table, table
from tvm_codl.cost.work import TERMS, lines_in_a_set, work
from tvm_codl.kernels.reuse import Tunings
from tvm_codl.kernels.variant import Variant
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

KINDS = (
    *("conv2d", "depthwise", "conv2d_transpose", "dense", "batch_matmul", "max_pool2d", "avg_pool2d"),
    *("global_avg_pool2d", "add", "softmax", "resize2d", "concatenate"),
    *("integer_conv2d", "integer_depthwise", "integer_dense"),
)
AXES = ("height", "channels", "rows", "batch")
_SIZES = ("batch", "out_h", "out_w", "out_c", "in_h", "in_w", "in_c", "kernel_h", "kernel_w", "stride", "body")
_CUT = ("lanes", "columns", "blocks", "unroll", "rows", "depth", "channels")
_NEAR, _FAR = 32 * 1024.0, 1024 * 1024.0

#: The columns of ``Described.rows``.
NAMES: tuple[str, ...] = (
    *(f"log_{name}" for name in TERMS[2:]),
    *(f"log_{name}" for name in _SIZES),
    *(f"tile_{name}" for name in _CUT),
    *("launches", "results", "weights_first", "source", "packs", "padding", "filtered", "tail", "fill", "work_items"),
    *("tile_weights", "near", "far", "intensity", "share", "lines", "store", "strip_2"),
    *(f"kind_{name}" for name in KINDS),
    *(f"axis_{name}" for name in AXES),
    *COLUMNS,
)

#: The prior's first guess: milliseconds for a start, for 1,000 cycles, for a kilobyte, on a core of a few GHz.
# fmt: off
START = {
    "one": 2e-3, "launches": 2e-3, "mac": 5e-4, "mac_8": 5e-4, "mac_4": 3e-4, "mac_2": 3e-4, "mac_1": 4e-4, "mac_lone": 8e-4,
    "tiles": 1e-4, "items": 1e-4, "pack": 1e-4, "weights": 2e-5, "extra": 5e-5, "data": 1e-5, "data_l2": 1e-5,
    "data_l3": 2e-5, "pad": 3e-5, "pad_l2": 2e-5, "pad_l3": 5e-5, "out": 3e-5, "out_l2": 2e-5, "out_l3": 5e-5,
    "slice": 5e-5, "slice_l2": 2e-5, "slice_l3": 5e-5, "weights_near": 1e-6, "weights_far": 5e-6, "data_near": 1e-6, "data_far": 5e-6,
    "conflict": 5e-4, "fetch": 1e-6, "inline": 1e-4, "exp": 1e-3, "flops": 4e-4, "scalar": 1e-4,
    "transform": 6e-5, "transform_l2": 2e-5, "transform_l3": 5e-5,
}
# fmt: on


class Described(msgspec.Struct, frozen=True):
    """What a model learns from, an entry or row for each kernel.

    ``work`` (rows, terms) is for the prior, ``start`` (terms,) its first guess of each term's cost in ms; ``rows``
    (rows, columns) are for the trees.  ``kinds`` are classes of operators; ``tiled``: the kernel has a register tile.
    """

    rows: Rows
    work: Rows
    start: Rows
    kinds: NDArray[np.str_]
    tiled: NDArray[np.bool_]

    def __getitem__(self, at: NDArray[np.intp]) -> Described:
        return Described(self.rows[at], self.work[at], self.start, self.kinds[at], self.tiled[at])


class Describer:
    """Describes workloads for one processor of one device, whose kernels are tuned as ``tunings`` say."""

    def __init__(self, tunings: Tunings, processor: Processor, device: DeviceFacts) -> None:
        self.device = device
        self._scheduler = Scheduler(tunings, processor, device)

    def __call__(self, workloads: Sequence[Workload]) -> Described:
        given = table(workloads)
        schedules = self._scheduler.schedules(given)
        terms = work(given, schedules)
        done = np.stack([terms[name] for name in TERMS], axis=1)
        rows = _rows(given, schedules, done, self.device)
        return Described(rows, done, np.array([START[name] for name in TERMS]), given.kinds, schedules.task != NONE)

    def schedules(self, workloads: Sequence[Workload]) -> Schedules:
        return self._scheduler.schedules(table(workloads))

    def variants(self, workloads: Sequence[Workload]) -> list[Variant]:
        """Of their kernels on the GPU."""
        return self._scheduler.variants(table(workloads))


def joined(parts: Sequence[Described]) -> Described:
    """Several as one, in their order."""

    def all_of(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    return Described(all_of("rows"), all_of("work"), parts[0].start, all_of("kinds"), all_of("tiled"))


def _rows(given: Table, s: Schedules, done: Rows, device: DeviceFacts) -> Rows:
    n = len(given)
    log_work = np.log2(1.0 + 1e3 * done[:, 2:])
    across = -(-s.columns_out // s.columns)
    groups = np.maximum(-(-s.channels // (s.lanes * s.blocks)), 1)
    tile_weights = 4.0 * s.blocks * s.lanes * s.depth
    moved = given["bytes_in"] + given["bytes_weights"] + given["bytes_out"]
    touched = given["bytes_data"] + given["bytes_weights"]
    columns = [
        *(np.log2(1.0 + np.maximum(given[name], 0)) for name in _SIZES),
        *(np.log2(np.maximum(getattr(s, name), 1)) for name in _CUT),
        done[:, 1],
        s.blocks * s.columns,
        s.weights_first,
        s.source,
        s.packs,
        s.padding,
        s.filtered,
        s.columns_out / (across * s.columns),
        given["out_c"] / np.maximum(s.channels, given["out_c"]),
        np.log2(np.maximum(groups * s.rows_out / s.rows, 1.0)),
        np.log2(tile_weights),
        np.log2(np.maximum(touched, 1.0) / _NEAR),
        np.log2(np.maximum(moved, 1.0) / _FAR),
        np.log2((given["flops"] + 1.0) / np.maximum(moved, 1.0)),
        given.share,
        np.log2(lines_in_a_set(given, s)),
        np.log2(np.gcd(given["out_c"], s.lanes)),
        np.log2(np.gcd(s.columns, 16)),
    ]
    kinds = [given.kinds == kind for kind in KINDS]
    axes = [given.axes == axis for axis in AXES]
    facts = np.tile(np.array(device.row()), (n, 1))
    return np.column_stack([log_work, *columns, *kinds, *axes, facts]).astype(np.float64)
