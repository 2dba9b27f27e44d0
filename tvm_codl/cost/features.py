"""Features: a workload as a row of numbers that a regression can use.

Sizes and work are logarithms, so that a tree's threshold is a ratio.  Latency has steps where a tile or a vector
fills up; the ``fill`` features say how full the last one is, and the ``padded`` ones how the padded amount of work
of a piece compares with its operator's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_codl.records.workload import Workload

Rows = NDArray[np.float64]

KINDS = (
    *("conv2d", "depthwise", "conv2d_transpose", "dense", "batch_matmul", "max_pool2d", "avg_pool2d"),
    *("global_avg_pool2d", "add", "softmax", "resize2d", "concatenate", "other"),
)
AXES = ("height", "channels", "rows", "batch")
_FACTS = (
    *("batch", "out_h", "out_w", "out_c", "in_h", "in_w", "in_c", "kernel_h", "kernel_w", "stride", "dilation"),
    *("groups", "flops", "bytes_in", "bytes_weights", "bytes_out", "body"),
)
_COLUMN = {name: i for i, name in enumerate(_FACTS)}
_TILES = (4, 8, 16)
_KIND = {name: i for i, name in enumerate(KINDS)}
_AXIS = {name: i for i, name in enumerate(AXES)}

#: One column of :func:`features` each.
NAMES: tuple[str, ...] = (
    *(f"log_{name}" for name in _FACTS),
    *("log_bytes", "log_intensity", "log_pixels", "log_reduction"),
    *(f"fill_{name}_{tile}" for name in ("out_c", "out_w", "out_h", "in_c") for tile in _TILES),
    *(f"kind_{name}" for name in KINDS),
    *(f"axis_{name}" for name in AXES),
    *("log_share", "log_flops_share", "log_bytes_share"),
    *(f"log_padded_share_{tile}" for tile in _TILES),
)

#: The columns in which log-time is close to linear, for a model that must extrapolate.
LINEAR = tuple(NAMES.index(name) for name in ("log_flops", "log_bytes", "log_out_c", "log_reduction"))
WORK_SHARE = NAMES.index("log_flops_share")
BYTES_SHARE = NAMES.index("log_bytes_share")


def features(workloads: Sequence[Workload]) -> Rows:
    """Shape (workloads, len(NAMES)), float64, without NaN or infinity."""
    if not workloads:
        return np.zeros((0, len(NAMES)))
    facts = _facts(workloads)
    whole = _facts([w.whole or w for w in workloads])
    log = np.log2(np.maximum(facts, 1.0))
    total, whole_total = _bytes(facts), _bytes(whole)
    work, whole_work = _column(facts, "flops"), _column(whole, "flops")
    outputs = _column(facts, "out_c") * _column(facts, "out_h") * _column(facts, "out_w") * _column(facts, "batch")
    derived = [
        np.log2(total),
        np.log2(np.maximum(work, 1.0) / total),
        np.log2(outputs / _column(facts, "out_c")),
        np.log2(np.maximum(work, 1.0) / np.maximum(outputs, 1.0)),
    ]
    fills = [
        _column(facts, name) / _padded(_column(facts, name), tile)
        for name in ("out_c", "out_w", "out_h", "in_c")
        for tile in _TILES
    ]
    share = np.array([(w.cut.hi - w.cut.lo) / w.cut.extent if w.cut else 1.0 for w in workloads])
    shares = [
        np.log2(share),
        np.log2(np.maximum(work, 1.0) / np.maximum(whole_work, 1.0)),
        np.log2(total / whole_total),
    ]
    padded = [np.log2(_work_tiles(facts, tile) / _work_tiles(whole, tile)) for tile in _TILES]
    kinds = np.zeros((len(workloads), len(KINDS)))
    kinds[np.arange(len(workloads)), [_KIND.get(w.kind, _KIND["other"]) for w in workloads]] = 1.0
    axes = np.zeros((len(workloads), len(AXES)))
    for row, w in enumerate(workloads):
        if w.cut and w.cut.axis in _AXIS:
            axes[row, _AXIS[w.cut.axis]] = 1.0
    columns = [*derived, *fills]
    return np.column_stack([log, *columns, kinds, axes, *shares, *padded])


def _facts(workloads: Sequence[Workload]) -> Rows:
    return np.array([[getattr(w, name) for name in _FACTS] for w in workloads], dtype=np.float64)


def _column(facts: Rows, name: str) -> Rows:
    return facts[:, _COLUMN[name]]


def _bytes(facts: Rows) -> Rows:
    total: Rows = _column(facts, "bytes_in") + _column(facts, "bytes_weights") + _column(facts, "bytes_out")
    return np.maximum(total, 1.0)


def _padded(size: Rows, tile: int) -> Rows:
    return np.ceil(np.maximum(size, 1.0) / tile) * tile


def _work_tiles(facts: Rows, tile: int) -> Rows:
    """Output elements, with the channels padded to full vectors and the rows to pairs."""
    rows = _column(facts, "batch") * _column(facts, "out_h")
    result: Rows = rows * _column(facts, "out_w") * _padded(_column(facts, "out_c"), tile)
    return np.maximum(result, 1.0)
