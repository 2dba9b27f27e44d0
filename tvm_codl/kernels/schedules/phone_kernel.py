"""The inner kernel of convolutions and matrix products on a phone's GPU.

A work-item keeps a tile of results in registers: ``columns`` neighbouring columns by ``blocks`` vectors of four channels.
A step goes over four input channels: it reads their weights, one vector for each channel and block, then for each column
one vector of inputs, and uses each of these as soon as it is there.  So few registers hold loads, and a load serves many
multiply-adds.  Neighbouring work-items take neighbouring channels: they read the same inputs and adjacent weights.

Inputs lie as (..., x, c), weights as (k, c), results as (..., x, c).
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import te

from tvm_codl.kernels.schedules.elementwise import schedule_stage
from tvm_codl.kernels.schedules.image import fill_image
from tvm_codl.kernels.schedules.operands import below, or_zero
from tvm_codl.kernels.target import gpu_of
from tvm_codl.kernels.tiles.groups import group_of
from tvm_codl.kernels.tiles.register_tiles import Tiles

LANES = 4
#: The stage of weights that :func:`packed` makes.
PACKED = "packed_weights"


def packed(depth: int, channels: int, value: Any) -> te.Tensor:
    """Weights as (``depth``, blocks, 4) from ``value(k, channel)``, with zeros behind the last channel."""
    blocks = -(-channels // LANES)

    def here(k: Any, block: Any, lane: Any) -> Any:
        channel = block * LANES + lane
        return or_zero(value(k, channel), below(channel, blocks * LANES, channels))

    return te.compute((depth, blocks, LANES), here, name=PACKED)


def schedule_tile(s: te.Schedule, out: te.Tensor, acc: te.Tensor, tiles: Tiles, sharing: bool = False) -> None:
    """Schedules ``out``, ``acc`` and what ``acc`` reads.  ``sharing``: the taps of a window's row use the same inputs."""
    source, weights = acc.op.input_tensors
    for stage in (source, weights):
        if isinstance(stage.op, te.ComputeOp):
            _schedule_input(s, stage)
    *outer, x, c = s[out].op.axis
    # Channels that the last vector does not fill are stored in narrower ones.
    width = math.gcd(int(c.dom.extent), LANES)
    block, lane = s[out].split(c, width)
    group, block = s[out].split(block, tiles.blocks * (LANES // width))
    strip, x = s[out].split(x, tiles.columns)
    above = s[out].fuse(*outer) if outer else None
    items = [-(-int(acc.shape[-2]) // tiles.blocks), -(-int(acc.shape[-3]) // tiles.columns)]
    items.append(math.prod(int(axis.dom.extent) for axis in outer))
    sizes = group_of((items[0], items[1], items[2]), gpu_of(tvm.target.Target.current()))
    grids, threads = [], []
    for axis, size, name in zip((group, strip, above), sizes, "xyz", strict=True):
        if axis is None:
            continue
        grid, thread = s[out].split(axis, size)
        grids.append((grid, f"blockIdx.{name}"))
        threads.append((thread, f"threadIdx.{name}"))
    order = [axis for axis, _ in (*reversed(grids), *reversed(threads))]
    s[out].reorder(*order, x, block, lane)
    for axis, tag in (*grids, *threads):
        s[out].bind(axis, te.thread_axis(tag))
    # The launch is known here, and OpenCL C has to say it: the note becomes an attribute (:mod:`.opencl_source`).
    note = "// codl group {} {} {}\n".format(*sizes)
    s[out].pragma(x, "import_c", note)
    s[out].vectorize(lane)
    s[out].unroll(x)
    s[out].unroll(block)
    s[acc].compute_at(s[out], order[-1])
    _schedule_accumulators(s, acc, source, weights, sharing)


def _schedule_accumulators(s: te.Schedule, acc: te.Tensor, source: Any, weights: Any, sharing: bool) -> None:
    inputs, read = s.cache_read(source, "local", [acc]), s.cache_read(weights, "local", [acc])
    s[acc].set_scope("local")
    *outer, x, block, lane = s[acc].op.axis
    *window, step = s[acc].op.reduce_axis
    if sharing:
        row, tap, channels = window
        window = [row, channels, tap]
        s[acc].unroll(tap)
    s[acc].reorder(*outer, *window, x, step, block, lane)
    for axis in (x, step, block):
        s[acc].unroll(axis)
    s[acc].vectorize(lane)
    s[read].compute_at(s[acc], window[-1])
    s[inputs].compute_at(s[acc], window[-2] if sharing else x)
    for stage in (read, inputs):
        *rest, last = s[stage].op.axis
        last, vector = s[stage].split(last, LANES)
        for axis in (*rest, last):
            s[stage].unroll(axis)
        s[stage].vectorize(vector)


def _schedule_input(s: te.Schedule, stage: te.Tensor) -> None:
    """Padding, and packing at run time, are kernels of their own."""
    if stage.op.name == PACKED and fill_image(s, stage):
        return
    schedule_stage(s, stage)
