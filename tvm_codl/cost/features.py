"""Features: a workload, the schedule that will run it and the device as a row of numbers that a regression can use.

Sizes and work are logarithms, so that a tree's threshold is a ratio.  Latency has steps where a tile, a vector or a cache
fills up; so the row holds the tile that was chosen for exactly this piece, how full the last one is, and which part of
the prior's time each kind of work is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from tvm_codl.cost.device import COLUMNS, DeviceFacts
from tvm_codl.cost.prior import terms_matrix
from tvm_codl.cost.schedules import NONE, Scheduler, Schedules
from tvm_codl.cost.table import Rows, Table, table
from tvm_codl.cost.work import TERMS, lines_in_a_set, work
from tvm_codl.kernels.reuse import Tunings
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

KINDS = (
    *("conv2d", "depthwise", "conv2d_transpose", "dense", "batch_matmul", "max_pool2d", "avg_pool2d"),
    *("global_avg_pool2d", "add", "softmax", "resize2d", "concatenate"),
)
AXES = ("height", "channels", "rows", "batch")
_SIZES = ("batch", "out_h", "out_w", "out_c", "in_h", "in_w", "in_c", "kernel_h", "kernel_w", "stride", "body")
_CUT = ("lanes", "columns", "blocks", "unroll", "rows", "depth", "channels")
_NEAR, _FAR = 32 * 1024.0, 1024 * 1024.0

#: One column of :func:`rows` each.
NAMES: tuple[str, ...] = (
    *(f"log_{name}" for name in TERMS[2:]),
    *(f"log_{name}" for name in _SIZES),
    *(f"tile_{name}" for name in _CUT),
    *("launches", "results", "weights_first", "source", "packs", "padding", "tail", "fill", "work_items"),
    *("tile_weights", "near", "far", "intensity", "share", "relayouts", "lines", "store", "strip_2"),
    *(f"kind_{name}" for name in KINDS),
    *(f"axis_{name}" for name in AXES),
    *COLUMNS,
)


class Described(msgspec.Struct, frozen=True):
    """Everything that a model looks at: ``rows`` (rows, len(NAMES)), ``work`` (rows, len(TERMS)), and which is which."""

    table: Table
    schedules: Schedules
    work: Rows
    rows: Rows

    @property
    def kinds(self) -> list[str]:
        found: list[str] = self.table.kinds.tolist()
        return found

    @property
    def tiled(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        result: np.ndarray[tuple[int], np.dtype[np.bool_]] = self.schedules.task != NONE
        return result


class Describer:
    """Describes workloads for one processor of one device, whose kernels are tuned as ``tunings`` say."""

    def __init__(self, tunings: Tunings, processor: Processor, device: DeviceFacts) -> None:
        self.device = device
        self._scheduler = Scheduler(tunings, processor, device.lanes(processor), device.threads(processor))

    def __call__(self, workloads: Sequence[Workload] | Table) -> Described:
        given = workloads if isinstance(workloads, Table) else table(workloads)
        schedules = self._scheduler.schedules(given)
        done = terms_matrix(work(given, schedules), TERMS)
        return Described(given, schedules, done, _rows(given, schedules, done, self.device))


def joined(parts: Sequence[Described]) -> Described:
    """Several as one, in their order."""
    if len(parts) == 1:
        return parts[0]

    def all_of(owners: Sequence[object], kind: type[Table] | type[Schedules]) -> dict[str, Any]:
        return {n: np.concatenate([getattr(o, n) for o in owners]) for n in kind.__struct_fields__}

    return Described(
        Table(**all_of([p.table for p in parts], Table)),
        Schedules(**all_of([p.schedules for p in parts], Schedules)),
        np.concatenate([p.work for p in parts]),
        np.concatenate([p.rows for p in parts]),
    )


def features(workloads: Sequence[Workload], processor: Processor = "cpu", tunings: Tunings | None = None) -> Rows:
    """Shape (workloads, len(NAMES)), float64, without NaN or infinity, for a device of which nothing is known."""
    return Describer(tunings or Tunings(), processor, DeviceFacts())(workloads).rows


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
        s.columns_out / (across * s.columns),
        given["out_c"] / np.maximum(s.channels, given["out_c"]),
        np.log2(np.maximum(groups * s.rows_out / s.rows, 1.0)),
        np.log2(tile_weights),
        np.log2(np.maximum(touched, 1.0) / _NEAR),
        np.log2(np.maximum(moved, 1.0) / _FAR),
        np.log2((given["flops"] + 1.0) / np.maximum(moved, 1.0)),
        given.share,
        given["bytes_relayout"] > 0,
        np.log2(lines_in_a_set(given, s)),
        np.log2(np.gcd(given["out_c"], s.lanes)),
        np.log2(np.gcd(s.columns, 16)),
    ]
    kinds = [given.kinds == kind for kind in KINDS]
    axes = [given.axes == axis for axis in AXES]
    facts = np.tile(np.array(device.row()), (n, 1))
    return np.column_stack([log_work, *columns, *kinds, *axes, facts]).astype(np.float64)
