"""How a depthwise convolution is cut: a strip of output columns in registers, some rows for a work-item."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tvm_codl.kernels.tiles.vectors import Size, largest_divisor

STRIP = 8
WORK = 1 << 16
#: Where zeros are put around the input: a condition at each load, a copy of an item's part, a copy of it all.
PADDINGS = ("inline", "item", "root")


class Strips(msgspec.Struct, frozen=True):
    """``columns`` of results in registers, ``rows`` per work-item, ``padding`` an index into :data:`PADDINGS`."""

    columns: Size
    rows: Size
    padding: Size


def item_work(columns: Size, lanes: Size, taps: Size) -> Any:
    """Multiply-adds for one row of one vector of channels."""
    return columns * taps * lanes


def choose(rows: Size, columns: Size, work: Size, gpu: bool, widest: int) -> Strips:
    """The estimate.  The strip is the widest up to twice the usual one that leaves no tail, else the usual one.

    ``work`` as :func:`item_work`; ``widest`` is the processor's vector.  A copy of the whole input costs as much as the
    convolution.  LLVM drops nearly all conditions at loads.  An OpenCL compiler for a CPU does not, but there an item's
    part fits its cache; a real GPU has no room for it.
    """
    strip = np.minimum(columns, STRIP)
    for width in range(STRIP // 2 + 1, 2 * STRIP - 1):
        strip = np.where(columns % width == 0, width, strip)
    items = np.clip(WORK // np.maximum(work, 1), 1, 16)
    return Strips(strip, largest_divisor(rows, items), PADDINGS.index("item" if gpu and widest > 4 else "inline"))


def fit(tuned: Strips, rows: Size, columns: Size) -> Strips:
    """``tuned``, perhaps measured on a larger operator, made legal."""
    return Strips(np.minimum(columns, tuned.columns), largest_divisor(rows, tuned.rows), tuned.padding)
