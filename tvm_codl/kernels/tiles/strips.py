"""How a depthwise convolution is cut: a strip of output columns in registers, some rows for a work-item."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.tiles.register_tiles import VECTOR_REGISTERS, vector_registers
from tvm_codl.kernels.tiles.vectors import Size, largest_divisor
from tvm_codl.kernels.tiles.window import reach

STRIP = 8
#: Columns of a real GPU's work-item: wider strips leave too few work-items in flight.
NARROW = 4
WORK = 1 << 16
#: Where zeros are put around the input: a condition at each load, a copy of an item's part, a copy of it all.
PADDINGS = ("inline", "item", "root")


class StripProblem(msgspec.Struct, frozen=True):
    """``rows`` × ``columns`` results of vectors of ``lanes`` channels, from windows of ``kernel_h`` × ``kernel_w``; ``stride``
    and ``dilation`` along the columns."""

    rows: Size
    columns: Size
    lanes: Size
    kernel_h: Size
    kernel_w: Size
    stride: Size
    dilation: Size


class Strips(msgspec.Struct, frozen=True):
    """``columns`` of results in registers, ``rows`` per work-item, ``padding`` an index into :data:`PADDINGS`; ``threads``:
    work-items in a group."""

    columns: Size
    rows: Size
    padding: Size
    threads: Size = 1


def choose(problem: StripProblem, widest: int, gpu: Gpu | None) -> Strips:
    """The estimate for a processor with vectors of ``widest``: ``gpu``, or a CPU.

    The strip is the widest that leaves no tail, up to twice the usual one where there are registers for it: with 14 columns
    AVX2's sixteen registers make a kernel half as fast.  Where each leaves one, what strips load decides.  An item's rows
    divide the problem's, or share it out evenly where that leaves an item few.

    A copy of the whole input costs as much as the convolution.  LLVM drops nearly all conditions at loads.  An OpenCL
    compiler for a CPU does not, but there an item's part fits its cache.  So it does with AVX2, where positions of many
    channels otherwise push each other out of the first cache: a network's kernel at 14 x 14 takes half of the time.
    """
    if gpu is not None and gpu.group > 1:
        return _choose_in_groups(problem, gpu)
    columns = problem.columns
    few = vector_registers(widest) < VECTOR_REGISTERS
    strip = best = np.minimum(columns, STRIP)
    for width in range(STRIP // 2 + 1, (STRIP if few else 2 * STRIP - 2) + 1):
        best = np.where(_loads(columns, width) < _loads(columns, best), width, best)
        strip = np.where(columns % width == 0, width, strip)
    strip = np.where(columns % strip == 0, strip, best)
    # Multiply-adds for one row of one vector of channels.
    work = columns * problem.kernel_h * problem.kernel_w * problem.lanes
    items = np.clip(WORK // np.maximum(work, 1), 1, 16)
    whole, even = largest_divisor(problem.rows, items), -(-problem.rows // -(-problem.rows // items))
    rows = np.where(2 * whole > even, whole, even)
    copied = few or (gpu is not None and widest > 4)
    return Strips(strip, rows, PADDINGS.index("item" if copied else "inline"))


def _loads(columns: Size, strip: Size) -> Any:
    """Columns that strips load: their own, a tail's among them, and two more for each."""
    return -(-columns // strip) * (strip + 2)


def _choose_in_groups(problem: StripProblem, gpu: Gpu) -> Strips:
    """The widest strip whose results, a row of inputs and of weights fit the registers together.

    Where registers are so few that they decide, the conditions of a tail are what does not fit (Mali-G78 spills): a strip
    leaves none there if it can.
    """
    strip = np.ones_like(problem.columns)
    for width in range(2, NARROW + 1):
        inputs = reach(width, problem.stride, problem.kernel_w, problem.dilation)
        held = (width + inputs + problem.kernel_w) * problem.lanes
        strip = np.where((held <= gpu.registers) & (width <= problem.columns), width, strip)
    whole = largest_divisor(problem.columns, strip)
    strip = np.where((strip < np.minimum(NARROW, problem.columns)) & (whole > 1), whole, strip)
    return Strips(strip, np.ones_like(strip), PADDINGS.index("inline"), np.full_like(strip, gpu.group))


def fit(tuned: Strips, problem: StripProblem) -> Strips:
    """``tuned``, perhaps measured on a larger operator, made legal."""
    columns, rows = np.minimum(problem.columns, tuned.columns), largest_divisor(problem.rows, tuned.rows)
    return Strips(columns, rows, tuned.padding, tuned.threads)
