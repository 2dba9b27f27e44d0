"""Convolution in NHWC with packed weights: compute and schedule for both processors."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import autotvm, te
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.reuse import CONV2D as TASK
from tvm_codl.kernels.schedules import phone_conv2d
from tvm_codl.kernels.schedules.kernel import (
    define_tiles,
    problem_on,
    schedule_fused,
    schedule_inputs,
    schedule_tile,
    tiles_of,
)
from tvm_codl.kernels.schedules.operands import WindowSizes, below, lane_of, or_zero
from tvm_codl.kernels.schedules.window import TAG, padded
from tvm_codl.kernels.target import is_phone, vector_lanes
from tvm_codl.kernels.tiles import vectors, window


def lanes_for(channels: int) -> int:
    """The largest vector of the current target that divides ``channels``; 1 if none does."""
    return int(vectors.lanes_for(channels, vector_lanes(tvm.target.Target.current())))


def packing(channels: int, positions: int) -> tuple[int, bool]:
    """:func:`tvm_codl.kernels.tiles.vectors.packing` for the current target's vectors."""
    lanes, fill = vectors.packing(channels, positions, vector_lanes(tvm.target.Target.current()))
    return int(lanes), bool(fill)


@autotvm.register_topi_compute(TASK)
def conv2d(
    cfg: autotvm.ConfigEntity,
    data: te.Tensor,
    kernel: te.Tensor,
    strides: tuple[int, int],
    padding: tuple[int, ...],
    dilation: tuple[int, int],
    out_dtype: str,
) -> te.Tensor:
    """``data`` (N, H, W, IC); ``kernel`` (OC/v, KH, KW, IC, v), or (KH, KW, IC, OC), which is packed as it runs."""
    n, h, w, channels_in = get_const_tuple(data.shape)
    kh, kw = get_const_tuple(kernel.shape)[1:3] if len(kernel.shape) == 5 else get_const_tuple(kernel.shape)[:2]
    if is_phone(tvm.target.Target.current()):
        return phone_conv2d.conv2d(cfg, data, kernel, strides, padding, dilation, out_dtype)
    (sh, sw), (dh, dw) = strides, dilation
    sizes = WindowSizes.of((h, w), (kh, kw), strides, padding, dilation)
    rows, columns = sizes.rows, sizes.columns
    weights = kernel if len(kernel.shape) == 5 else _pack(kernel, rows * columns)
    blocks, lanes = int(weights.shape[0]), int(weights.shape[4])
    channels = blocks * lanes if len(kernel.shape) == 5 else int(kernel.shape[3])
    tiles = define_tiles(cfg, problem_on(rows, columns, blocks * lanes, kh * kw * channels_in, channels_in, lanes))
    whole = window.whole_tiles(columns, tiles.columns)
    source = padded(data, sizes.top, sizes.left, window.reach(rows, sh, kh, dh), window.reach(whole, sw, kw, dw))
    ry, rx = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx")
    rc = te.reduce_axis((0, channels_in), "rc")
    acc = te.compute(
        (n, rows, whole, blocks, lanes),
        lambda b, y, x, block, lane: te.sum(
            source[b, y * sh + ry * dh, x * sw + rx * dw, rc].astype(out_dtype)
            * weights[block, ry, rx, rc, lane].astype(out_dtype),
            axis=[ry, rx, rc],
        ),
        name="acc",
    )
    cfg.add_flop(2 * n * rows * columns * channels * kh * kw * channels_in)
    return te.compute(
        (n, rows, columns, channels),
        lambda b, y, x, c: acc[b, y, x, c // lanes, lane_of(c, lanes, channels)],
        name="conv2d",
        tag=TAG,
    )


@autotvm.register_topi_schedule(TASK)
def schedule_conv2d(cfg: autotvm.ConfigEntity, outs: list[te.Tensor]) -> te.Schedule:
    def schedule(s: te.Schedule, out: te.Tensor, conv: te.Tensor) -> None:
        (acc,) = conv.op.input_tensors
        if is_phone(tvm.target.Target.current()):
            phone_conv2d.schedule(cfg, s, out, conv)
            return
        channels_in = int(acc.op.input_tensors[0].shape[3])
        _, rows, columns, _ = get_const_tuple(conv.shape)
        blocks, lanes = get_const_tuple(acc.shape)[3:]
        kh, kw = (int(axis.dom.extent) for axis in acc.op.reduce_axis[:2])
        problem = problem_on(rows, columns, blocks * lanes, kh * kw * channels_in, channels_in, lanes)
        schedule_inputs(s, acc)
        schedule_tile(s, out, acc, tiles_of(cfg, problem), rows=True)

    return schedule_fused(outs, TAG, schedule)


def _pack(kernel: te.Tensor, positions: int) -> te.Tensor:
    """(KH, KW, IC, OC) as (ceil(OC/v), KH, KW, IC, v)."""
    kh, kw, channels_in, channels = get_const_tuple(kernel.shape)
    lanes, _ = packing(channels, positions)
    blocks = -(-channels // lanes)

    def value(block: Any, y: Any, x: Any, k: Any, lane: Any) -> Any:
        channel = block * lanes + lane
        return or_zero(kernel[y, x, k, channel], below(channel, blocks * lanes, channels))

    return te.compute((blocks, kh, kw, channels_in, lanes), value, name="packed_weights")
