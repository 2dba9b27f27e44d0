"""How a depthwise convolution is cut: a strip of output columns in registers, some rows for a work-item."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.tiles.vectors import Size, largest_divisor
from tvm_codl.kernels.tiles.window import reach

#: Columns of a strip at least, if there are so many, and at most where they divide the results' columns.
FEWEST, MOST = 3, 7
#: The same for windows wider than three columns, of which wide strips share more.
MOST_OF_WIDE = 10
#: Columns of a real GPU's work-item: wider strips leave too few work-items in flight.
NARROW = 4
#: Where zeros are put around the input: a condition at each load, a copy of what a strip reads, a copy of it all.
PADDINGS = ("inline", "item", "root")


class StripProblem(msgspec.Struct, frozen=True):
    """``rows`` × ``columns`` results of vectors of ``lanes`` channels, from windows ``kernel_w`` wide; ``stride`` and
    ``dilation`` along the columns."""

    rows: Size
    columns: Size
    lanes: Size
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


def choose(problem: StripProblem, gpu: Gpu | None) -> Strips:
    """The estimate for ``gpu``, or for a CPU.

    A strip is computed for one vector of channels after the other, so that memory is read in order: positions of many
    channels, a power of two of bytes apart, share few sets of a cache.  The strip is the widest that leaves no tail; where
    each leaves one, what strips load decides.  Two rows share their inputs in the cache where their windows overlap.

    A copy of the whole input costs as much as the convolution.  LLVM drops nearly all conditions at loads.  An OpenCL
    compiler for a CPU does not, but there what a strip reads of a vector of channels fits the first cache.
    """
    if gpu is not None and gpu.group > 1:
        return _choose_in_groups(problem, gpu)
    columns, most = problem.columns, np.where(problem.kernel_w > 3, MOST_OF_WIDE, MOST)
    strip = best = np.minimum(columns, FEWEST)
    for width in range(FEWEST + 1, MOST_OF_WIDE + 1):
        # Not the widest: with a tail, LLVM keeps that one's conditions.
        fewer = (_loads(columns, width) < _loads(columns, best)) & (width < most)
        best = np.where(fewer, width, best)
        strip = np.where((columns % width == 0) & (width <= most), width, strip)
    strip = np.where(columns % strip == 0, strip, best)
    rows = np.where((problem.stride == 1) & (problem.rows > 1) & (gpu is None), 2, 1)
    return Strips(strip, rows, PADDINGS.index("inline" if gpu is None else "item"))


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
