"""Convolution in NHWC on a phone's GPU: the compute and the schedule of :mod:`.conv2d` there.

Weights are read as they lie, (KH, KW, IC, OC).  They are packed as the kernel runs only where an image wants them or
channels do not fill vectors of four: an image's three input channels, and few output channels.
"""

from __future__ import annotations

from typing import Any

import msgspec
import tvm
from tvm import autotvm, te
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.schedules.image import fits_image
from tvm_codl.kernels.schedules.kernel import define_tiles, problem_on, tiles_of
from tvm_codl.kernels.schedules.operands import WindowSizes, below, lane_of, or_zero
from tvm_codl.kernels.schedules.phone_kernel import LANES, packed, schedule_tile, step_of, sums
from tvm_codl.kernels.schedules.window import TAG, padded
from tvm_codl.kernels.target import gpu_of
from tvm_codl.kernels.tiles import window
from tvm_codl.kernels.tiles.register_tiles import Problem, shared_taps


def conv2d(
    cfg: autotvm.ConfigEntity,
    data: te.Tensor,
    kernel: te.Tensor,
    strides: tuple[int, int],
    padding: tuple[int, ...],
    dilation: tuple[int, int],
    out_dtype: str,
) -> te.Tensor:
    """``data`` (N, H, W, IC), ``kernel`` (KH, KW, IC, OC), result (N, OH, OW, OC)."""
    n, h, w, channels_in = get_const_tuple(data.shape)
    kh, kw, _, channels = get_const_tuple(kernel.shape)
    (sh, sw), (dh, dw) = strides, dilation
    sizes = WindowSizes.of((h, w), (kh, kw), strides, padding, dilation)
    rows, columns = sizes.rows, sizes.columns
    shared = int(shared_taps(gpu_of(tvm.target.Target.current()), kw, sw, dw))
    tiles = define_tiles(cfg, _problem(rows, columns, channels, kh * kw, channels_in, shared))
    sharing = shared > 1
    whole = window.whole_tiles(columns, tiles.columns)
    extra = -channels_in % LANES
    source = padded(data, sizes.top, sizes.left, window.reach(rows, sh, kh, dh), window.reach(whole, sw, kw, dw), extra)
    weights = _weights(kernel, extra)
    # Neighbouring taps of an undilated window are neighbours in memory: one loop goes over them and their channels, unless
    # they share inputs.
    size = step_of(data.dtype, channels_in + extra)
    steps = (channels_in + extra) // size
    taps, together = (kw, 1) if dw > 1 or sharing else (1, kw)
    extents = {"ry": kh, "rx": taps, "rc": together * steps}

    def operands(at: Any, ry: Any, rx: Any, rc: Any, step: Any) -> tuple[Any, Any]:
        b, y, x, block, lane = at
        tap, c = (rx, rc) if sharing else (rx + rc // steps, rc % steps)
        c = c * size + step
        return source[b, y * sh + ry * dh, x * sw + tap * dw, c], weights(ry, tap, c, block, lane)

    shape = (n, rows, whole, -(-channels // LANES), LANES)
    reduced = [te.reduce_axis((0, extent), name) for name, extent in extents.items()]
    acc = sums(shape, reduced, size, operands, out_dtype, {"sharing": int(sharing), "step": size})
    cfg.add_flop(2 * n * rows * columns * channels * kh * kw * channels_in)
    return te.compute(
        (n, rows, columns, channels),
        lambda b, y, x, c: acc[b, y, x, c // LANES, lane_of(c, LANES, channels)],
        name="conv2d",
        tag=TAG,
    )


def schedule(cfg: autotvm.ConfigEntity, s: te.Schedule, out: te.Tensor, conv: te.Tensor) -> None:
    (acc,) = conv.op.input_tensors
    _, rows, columns, channels = get_const_tuple(conv.shape)
    kh, taps, steps = (int(axis.dom.extent) for axis in acc.op.reduce_axis[:3])
    sharing, deep = bool(acc.op.attrs["sharing"]), steps * int(acc.op.attrs["step"])
    problem = _problem(rows, columns, channels, kh * taps, deep, taps if sharing else 1)
    schedule_tile(s, out, acc, tiles_of(cfg, problem), sharing)


def _problem(rows: int, columns: int, channels: int, taps: int, channels_in: int, shared: int) -> Problem:
    whole = -(-channels // LANES) * LANES
    deep = -(-channels_in // LANES) * LANES
    return msgspec.structs.replace(problem_on(rows, columns, whole, taps * deep, deep, LANES), shared=shared)


def _weights(kernel: te.Tensor, extra: int) -> Any:
    """How a tap's weights for an input channel are read: ``(y, x, c, block, lane)``."""
    kh, kw, channels_in, channels = get_const_tuple(kernel.shape)
    deep, blocks = channels_in + extra, -(-channels // LANES)
    if not extra and channels % LANES == 0 and not fits_image((kh * kw * deep, blocks, LANES)):
        return lambda y, x, c, block, lane: kernel[y, x, c, block * LANES + lane]

    def value(k: Any, channel: Any) -> Any:
        tap, c = k // deep, k % deep
        return or_zero(kernel[tap // kw, tap % kw, c, channel], below(c, deep, channels_in))

    whole = packed(kh * kw * deep, channels, value)
    return lambda y, x, c, block, lane: whole[(y * kw + x) * deep + c, block, lane]
