"""How a depthwise convolution is cut: a strip of output columns in registers, some rows for a work-item."""

from __future__ import annotations

from tvm_codl.kernels.tiles.tiles import largest_divisor

STRIP = 8
WORK = 1 << 16


def strip(columns: int) -> int:
    """The widest strip up to twice the usual one that leaves no tail; else the usual one."""
    return next(
        (c for c in range(min(columns, 2 * STRIP - 2), STRIP // 2, -1) if columns % c == 0), min(columns, STRIP)
    )


def rows_per_item(rows: int, work: int) -> int:
    """Rows for one work-item; ``work`` is the multiply-adds of one row of one vector of channels."""
    return largest_divisor(rows, max(1, min(16, WORK // max(1, work))))
