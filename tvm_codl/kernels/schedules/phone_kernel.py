"""The inner kernel of convolutions and matrix products on a phone's GPU.

A work-item keeps a tile of results in registers: ``columns`` neighbouring columns by ``blocks`` vectors of four channels.
A step goes over four input channels: it reads their weights, one vector for each channel and block, then for each column
one vector of inputs, and uses each of these as soon as it is there.  So few registers hold loads, and a load serves many
multiply-adds.  Neighbouring work-items take neighbouring channels: they read the same inputs and adjacent weights.

Inputs lie as (..., x, c), weights as (k, c), results as (..., x, c).

Float16 has a stage more: a step's products are added up in float16, of which Mali computes twice as many at a time, and the
sums of steps in float32, so that long sums keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import te, tir

from tvm_codl.kernels.schedules.elementwise import schedule_stage
from tvm_codl.kernels.schedules.image import fill_image
from tvm_codl.kernels.schedules.operands import below, or_zero
from tvm_codl.kernels.target import gpu_of
from tvm_codl.kernels.tiles.groups import group_of
from tvm_codl.kernels.tiles.register_tiles import Tiles

LANES = 4
#: Input channels of a step of float16, where they divide the channels; Adreno has too few registers for their weights.
HALVES = 8
#: The stage of weights that :func:`packed` makes.
PACKED = "packed_weights"


def packed(depth: int, channels: int, value: Any) -> te.Tensor:
    """Weights as (``depth``, blocks, 4) from ``value(k, channel)``, with zeros behind the last channel."""
    blocks = -(-channels // LANES)

    def here(k: Any, block: Any, lane: Any) -> Any:
        channel = block * LANES + lane
        return or_zero(value(k, channel), below(channel, blocks * LANES, channels))

    return te.compute((depth, blocks, LANES), here, name=PACKED)


def step_of(dtype: str, channels_in: int) -> int:
    """How many of ``channels_in``, a multiple of four, a step goes over."""
    many = dtype == "float16" and gpu_of(tvm.target.Target.current()).kind != "adreno"
    return HALVES if many and channels_in % HALVES == 0 else LANES


def sums(
    shape: Sequence[int],
    window: Sequence[tir.IterVar],
    step: int,
    operands: Callable[..., tuple[Any, Any]],
    dtype: str,
    attrs: Mapping[str, int],
) -> te.Tensor:
    """The accumulators, of ``shape`` and ``dtype``: ``operands(index, *window, step)`` multiplied and added up over the window
    and steps."""
    axis = te.reduce_axis((0, step), "step")
    rank = len(shape)

    def product(*at: Any) -> Any:
        left, right = operands(at, *window, axis)
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=[*window, axis])

    def short(*at: Any) -> Any:
        left, right = operands(at[:rank], *at[rank:], axis)
        return te.sum(left * right, axis=[axis])

    if operands([0] * rank, *window, axis)[0].dtype != "float16":
        return te.compute(shape, product, name="acc", attrs=attrs)
    partial = te.compute((*shape, *(int(each.dom.extent) for each in window)), short, name="partial")

    def total(*at: Any) -> Any:
        return te.sum(partial[(*at, *window)].astype(dtype), axis=[*window])

    return te.compute(shape, total, name="acc", attrs=attrs)


def schedule_tile(s: te.Schedule, out: te.Tensor, acc: te.Tensor, tiles: Tiles, sharing: bool = False) -> None:
    """Schedules ``out``, ``acc`` and what ``acc`` reads.  ``sharing``: the taps of a window's row use the same inputs."""
    # What multiplies: the accumulators, or the partial sums that they add up.
    inner = acc if len(acc.op.input_tensors) == 2 else acc.op.input_tensors[0]
    source, weights = inner.op.input_tensors
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
    _schedule_accumulators(s, acc, inner, sharing)


def _schedule_accumulators(s: te.Schedule, acc: te.Tensor, inner: te.Tensor, sharing: bool) -> None:
    source, weights = inner.op.input_tensors
    inputs, read = s.cache_read(source, "local", [inner]), s.cache_read(weights, "local", [inner])
    s[acc].set_scope("local")
    *outer, x, block, lane = s[acc].op.axis
    window = list(s[acc].op.reduce_axis)
    step = [window.pop()] if inner is acc else []
    if sharing:
        row, tap, channels = window
        window = [row, channels, tap]
        s[acc].unroll(tap)
    s[acc].reorder(*outer, *window, x, *step, block, lane)
    for axis in (x, *step, block):
        s[acc].unroll(axis)
    s[acc].vectorize(lane)
    if inner is not acc:
        s[inner].set_scope("local")
        s[inner].compute_at(s[acc], x)
        block, lane = s[inner].op.axis[len(outer) + 1 : len(outer) + 3]
        s[inner].reorder(*s[inner].op.reduce_axis, block, lane)
        for axis in (*s[inner].op.reduce_axis, block):
            s[inner].unroll(axis)
        s[inner].vectorize(lane)
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
