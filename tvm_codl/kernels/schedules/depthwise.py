"""Depthwise convolution in NHWC: vectors run over channels, a strip of output columns stays in registers.

Each load feeds one multiply-add, so each input should be loaded once: the window's columns are unrolled, and the compiler
keeps what neighbouring outputs share.  A strip takes its vectors of channels in order, as they lie in memory.
"""

from __future__ import annotations

import functools
import math

import tvm
from tvm import autotvm, te
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.reuse import DEPTHWISE as TASK
from tvm_codl.kernels.schedules.conv2d import lanes_for
from tvm_codl.kernels.schedules.elementwise import schedule_stage, share_out
from tvm_codl.kernels.schedules.groups import spread
from tvm_codl.kernels.schedules.kernel import distinct, integers, schedule_fused
from tvm_codl.kernels.schedules.operands import WindowSizes
from tvm_codl.kernels.schedules.window import padded
from tvm_codl.kernels.target import gpu_of, is_gpu
from tvm_codl.kernels.tiles import strips, window
from tvm_codl.kernels.tiles.strips import StripProblem, Strips

TAG = "depthwise_conv2d_nhwc_codl"
#: The stage of 8-bit integers as wide as their sums.
WIDE = "wide"
#: Vectors of a copy of what a strip reads that are written out; a dilated window reads hundreds.
WRITTEN_OUT = 128


@autotvm.register_topi_compute(TASK)
def depthwise_conv2d(
    cfg: autotvm.ConfigEntity,
    data: te.Tensor,
    kernel: te.Tensor,
    strides: tuple[int, int],
    padding: tuple[int, ...],
    dilation: tuple[int, int],
    out_dtype: str,
) -> te.Tensor:
    """``data`` (N, H, W, C); ``kernel`` (KH, KW, C, M) with M results for each channel."""
    n, h, w, _ = get_const_tuple(data.shape)
    kh, kw, channels, many = get_const_tuple(kernel.shape)
    (sh, sw), (dh, dw) = strides, dilation
    sizes = WindowSizes.of((h, w), (kh, kw), strides, padding, dilation)
    rows, columns = sizes.rows, sizes.columns
    cut = _define(cfg, StripProblem(rows, columns, _lanes(channels, many), kw, sw, dw))
    whole = window.whole_tiles(columns, cut.columns)
    if data.dtype in ("uint8", "int8") and cut.threads > 1:
        # TVM's OpenCL has no variables of four 8-bit integers.
        narrow = data
        data = te.compute(narrow.shape, lambda *at: narrow(*at).astype(out_dtype), name=WIDE)
    source = padded(data, sizes.top, sizes.left, window.reach(rows, sh, kh, dh), window.reach(whole, sw, kw, dw))
    ry, rx = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx")
    acc = te.compute(
        (n, rows, whole, channels * many),
        lambda b, y, x, c: te.sum(
            source[b, y * sh + ry * dh, x * sw + rx * dw, c // many].astype(out_dtype)
            * kernel[ry, rx, c // many, c % many].astype(out_dtype),
            axis=[ry, rx],
        ),
        name="acc",
        attrs={"stride": sw, "dilation": dw},
    )
    cfg.add_flop(2 * n * rows * columns * channels * many * kh * kw)
    return te.compute(
        (n, rows, columns, channels * many), lambda b, y, x, c: acc[b, y, x, c], name="depthwise", tag=TAG
    )


@autotvm.register_topi_schedule(TASK)
def schedule_depthwise(cfg: autotvm.ConfigEntity, outs: list[te.Tensor]) -> te.Schedule:
    return schedule_fused(outs, TAG, functools.partial(_schedule, cfg))


def _schedule(cfg: autotvm.ConfigEntity, s: te.Schedule, out: te.Tensor, conv: te.Tensor) -> None:
    (acc,) = conv.op.input_tensors
    source, kernel = acc.op.input_tensors
    _, rows, columns, channels = get_const_tuple(conv.shape)
    lanes = _lanes(channels, int(kernel.shape[3]))
    kh, kw = (int(axis.dom.extent) for axis in acc.op.reduce_axis)
    stride, dilation = int(acc.op.attrs["stride"]), int(acc.op.attrs["dilation"])
    cut = _strips(cfg, StripProblem(rows, columns, lanes, kw, stride, dilation))
    if cut.threads > 1:
        _schedule_groups(s, out, acc, cut, lanes)
        return
    n, y, x, c = s[out].op.axis
    block, lane = s[out].split(c, lanes)
    strip, x = s[out].split(x, cut.columns)
    y, y_inner = s[out].split(y, cut.rows)
    s[out].reorder(n, y, strip, block, y_inner, x, lane)
    s[out].unroll(x)
    s[out].vectorize(lane)
    s[acc].compute_at(s[out], y_inner)
    s[acc].set_scope("local")
    _, ay, ax, ac = s[acc].op.axis
    ac, lane = s[acc].split(ac, lanes)
    ry, rx = s[acc].op.reduce_axis
    s[acc].reorder(ay, ac, ry, rx, ax, lane)
    s[acc].unroll(rx)
    s[acc].unroll(ax)
    s[acc].vectorize(lane)
    items = s[out].fuse(n, y)
    if isinstance(source.op, te.ComputeOp):
        read = [window.reach(n, stride, k, dilation) for n, k in ((cut.rows, kh), (cut.columns, kw))]
        _schedule_padding(s, out, source, block, lanes, strips.PADDINGS[cut.padding], math.prod(read) <= WRITTEN_OUT)
    share_out(s[out], items)


def _schedule_groups(s: te.Schedule, out: te.Tensor, acc: te.Tensor, cut: Strips, lanes: int) -> None:
    """A tile of ``cut.rows`` × ``cut.columns`` results for each work-item; neighbours have neighbouring channels.

    A work-item loads each input of its tile once, into registers.
    """
    batch, rows, columns, channels = get_const_tuple(out.shape)
    source = acc.op.input_tensors[0]
    n, y, x, c = s[out].op.axis
    block, lane = s[out].split(c, lanes)
    strip, x = s[out].split(x, cut.columns)
    y, y_inner = s[out].split(y, cut.rows)
    s[out].reorder(n, y, strip, block, y_inner, x, lane)
    for axis in (y_inner, x):
        s[out].unroll(axis)
    s[out].vectorize(lane)
    extents = [batch, -(-rows // cut.rows), -(-columns // cut.columns), channels // lanes]
    item = spread(s[out], [n, y, strip, block], extents, 1, cut.threads)
    s[acc].compute_at(s[out], item)
    s[acc].set_scope("local")
    _, ay, ax, ac = s[acc].op.axis
    ac, lane = s[acc].split(ac, lanes)
    ry, rx = s[acc].op.reduce_axis
    s[acc].reorder(ac, ry, rx, ay, ax, lane)
    for axis in (rx, ay, ax):
        s[acc].unroll(axis)
    s[acc].vectorize(lane)
    pads = isinstance(source.op, te.ComputeOp)
    for stage in source.op.input_tensors:
        if stage.op.name == WIDE:
            s[stage].compute_inline()
    if pads and strips.PADDINGS[cut.padding] == "root":
        schedule_stage(s, source)
        pads = False
    cache = source if pads else s.cache_read(source, "local", [acc])
    s[cache].set_scope("local")
    if cut.rows > 1:
        s[acc].unroll(ry)
        s[cache].compute_at(s[out], item)
    else:
        s[cache].compute_at(s[acc], ry)
    _, cy, cx, cc = s[cache].op.axis
    for axis in (cy, cx):
        s[cache].unroll(axis)
    if lanes > 1:
        _, lane = s[cache].split(cc, lanes)
        s[cache].vectorize(lane)


def _schedule_padding(
    s: te.Schedule, out: te.Tensor, source: te.Tensor, block, lanes: int, how: str, few: bool
) -> None:
    """``few``: a copy of what a strip reads has so few vectors that they are written out."""
    if how == "root":
        schedule_stage(s, source)
    elif how == "inline":
        s[source].compute_inline()
    else:
        s[source].compute_at(s[out], block)
        s[source].set_scope("local")
        if few:
            for axis in s[source].op.axis[1:3]:
                s[source].unroll(axis)
        if lanes > 1 and int(source.shape[3]) % lanes == 0:
            _, lane = s[source].split(s[source].op.axis[3], lanes)
            s[source].vectorize(lane)


def _define(cfg: autotvm.ConfigEntity, problem: StripProblem) -> Strips:
    """Declares the knobs to AutoTVM, the estimate as the first value of each, and returns what ``cfg`` stands for."""
    first = _estimate(problem)
    usual = strips.PADDINGS[first.padding]
    groups = first.threads > 1
    columns, rows = ((2, 3, 4, 6, 8), (1, 2)) if groups else ((3, 4, 5, 6, 7, 8, 10), (1, 2, 4))
    cfg.define_knob("columns", distinct(first.columns, *(c for c in columns if c <= problem.columns)))
    cfg.define_knob("rows", distinct(first.rows, *(r for r in rows if problem.rows % r == 0)))
    cfg.define_knob("padding", distinct(usual, *(p for p in strips.PADDINGS if not groups or p != "item")))
    if groups:
        cfg.define_knob("threads", _groups(first.threads))
    return _strips(cfg, problem)


def _groups(usual: int) -> list[int]:
    gpu = gpu_of(tvm.target.Target.current())
    return distinct(usual, *(n for n in (32, 64, 128, 256) if gpu.warp <= n <= gpu.max_group))


def _strips(cfg: autotvm.ConfigEntity, problem: StripProblem) -> Strips:
    """The estimate, or those of ``cfg`` made legal."""
    first = _estimate(problem)
    if cfg.is_fallback:
        return first
    threads = int(cfg["threads"].val) if first.threads > 1 else 1
    tuned = Strips(int(cfg["columns"].val), int(cfg["rows"].val), strips.PADDINGS.index(cfg["padding"].val), threads)
    return integers(strips.fit(tuned, problem))


def _estimate(problem: StripProblem) -> Strips:
    target = tvm.target.Target.current()
    return integers(strips.choose(problem, gpu_of(target) if is_gpu(target) else None))


def _lanes(channels: int, many: int) -> int:
    """Vectors run over channels that each have one result."""
    return lanes_for(channels) if many == 1 else 1
