"""Depthwise convolution in NHWC: vectors run over channels, a strip of output columns stays in registers.

One load feeds one multiply-add, so what counts is to load each input once: the window's columns are written out, and
the compiler keeps what neighbouring outputs share.
"""

from __future__ import annotations

import tvm
from tvm import autotvm, te
from tvm.topi.nn.utils import get_pad_tuple
from tvm.topi.utils import get_const_tuple, traverse_inline

from tvm_codl.kernels.schedules.conv2d import lanes_for, padded
from tvm_codl.kernels.schedules.elementwise import schedule_stage
from tvm_codl.kernels.target import is_gpu, vector_lanes
from tvm_codl.kernels.tiles.strips import rows_per_item, strip
from tvm_codl.kernels.tiles.tiles import largest_divisor

TASK = "depthwise_conv2d_nhwc.codl"
TAG = "depthwise_conv2d_nhwc_codl"


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
    top, left, bottom, right = get_pad_tuple(padding, ((kh - 1) * dh + 1, (kw - 1) * dw + 1))
    rows = (h + top + bottom - (kh - 1) * dh - 1) // sh + 1
    columns = (w + left + right - (kw - 1) * dw - 1) // sw + 1
    target = tvm.target.Target.current()
    _define(cfg, rows, columns, _item_work(columns, channels * many, many, kh * kw, target), target)
    whole = -(-columns // _columns(cfg, columns)) * _columns(cfg, columns)
    need_h, need_w = (rows - 1) * sh + (kh - 1) * dh + 1, (whole - 1) * sw + (kw - 1) * dw + 1
    inside = not (top or left or need_h > h or need_w > w)
    source = data if inside else padded(data, top, left, max(need_h, top + h), max(need_w, left + w))
    ry, rx = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx")
    acc = te.compute(
        (n, rows, whole, channels * many),
        lambda b, y, x, c: te.sum(
            source[b, y * sh + ry * dh, x * sw + rx * dw, c // many].astype(out_dtype)
            * kernel[ry, rx, c // many, c % many].astype(out_dtype),
            axis=[ry, rx],
        ),
        name="acc",
    )
    cfg.add_flop(2 * n * rows * columns * channels * many * kh * kw)
    return te.compute(
        (n, rows, columns, channels * many), lambda b, y, x, c: acc[b, y, x, c], name="depthwise", tag=TAG
    )


@autotvm.register_topi_schedule(TASK)
def schedule_depthwise(cfg: autotvm.ConfigEntity, outs: list[te.Tensor]) -> te.Schedule:
    outs = [outs] if isinstance(outs, te.Tensor) else outs
    s = te.create_schedule([t.op for t in outs])

    def visit(op: te.Operation) -> None:
        if op.tag == TAG:
            _schedule(s, cfg, outs[0], op.output(0))

    traverse_inline(s, outs[0].op, visit)
    return s


def _schedule(s: te.Schedule, cfg: autotvm.ConfigEntity, out: te.Tensor, conv: te.Tensor) -> None:
    target = tvm.target.Target.current()
    gpu = is_gpu(target)
    (acc,) = conv.op.input_tensors
    source, kernel = acc.op.input_tensors
    _, rows, columns, channels = get_const_tuple(conv.shape)
    many = int(kernel.shape[3])
    lanes = lanes_for(channels, target) if many == 1 else 1
    if not conv.op.same_as(out.op):
        s[conv].compute_inline()
    kh, kw = (int(axis.dom.extent) for axis in acc.op.reduce_axis)
    n, y, x, c = s[out].op.axis
    block, lane = s[out].split(c, lanes)
    strip, x = s[out].split(x, _columns(cfg, columns))
    y, y_inner = s[out].split(y, _rows(cfg, rows, _item_work(columns, channels, many, kh * kw, target)))
    s[out].reorder(n, y, block, y_inner, strip, x, lane)
    s[out].unroll(x)
    s[out].vectorize(lane)
    s[acc].compute_at(s[out], strip)
    s[acc].set_scope("local")
    _, ay, ax, ac = s[acc].op.axis
    ac, lane = s[acc].split(ac, lanes)
    ry, rx = s[acc].op.reduce_axis
    s[acc].reorder(ay, ac, ry, rx, ax, lane)
    s[acc].unroll(rx)
    s[acc].unroll(ax)
    s[acc].vectorize(lane)
    items = s[out].fuse(n, y, block)
    if isinstance(source.op, te.ComputeOp):
        _schedule_padding(s, out, source, items, lanes, _padding(cfg, target), gpu)
    if gpu:
        s[out].bind(items, te.thread_axis("blockIdx.x"))
    else:
        s[out].parallel(items)


def _schedule_padding(
    s: te.Schedule, out: te.Tensor, source: te.Tensor, items, lanes: int, how: str, gpu: bool
) -> None:
    if how == "root":
        schedule_stage(s, source, gpu)
    elif how == "inline":
        s[source].compute_inline()
    else:
        s[source].compute_at(s[out], items)
        s[source].set_scope("local")
        s[source].pragma(s[source].op.axis[2], "loop_partition_hint")  # the columns inside need no condition
        if lanes > 1 and int(source.shape[3]) % lanes == 0:
            _, lane = s[source].split(s[source].op.axis[3], lanes)
            s[source].vectorize(lane)


def _define(cfg: autotvm.ConfigEntity, rows: int, columns: int, work: int, target: tvm.target.Target) -> None:
    """The knobs; the first value of each is the estimate."""
    strips = (strip(columns), *(c for c in (4, 7, 8, 10, 14) if c <= columns))
    cfg.define_knob("columns", list(dict.fromkeys(strips)))
    cfg.define_knob(
        "rows", list(dict.fromkeys((rows_per_item(rows, work), *(r for r in (1, 2, 4, 8) if rows % r == 0))))
    )
    first = _default_padding(target)
    cfg.define_knob("padding", [first, *(how for how in ("inline", "item", "root") if how != first)])


def _default_padding(target: tvm.target.Target) -> str:
    """Where zeros are put around the input: a copy of it, a copy of an item's part, or a condition at each load.

    A copy of the whole costs as much as the convolution.  LLVM drops nearly all conditions; an OpenCL compiler for a CPU
    does not, and there an item's part fits its cache, while a real GPU has no room for it.
    """
    return "item" if is_gpu(target) and vector_lanes(target) > 4 else "inline"


def _padding(cfg: autotvm.ConfigEntity, target: tvm.target.Target) -> str:
    return _default_padding(target) if cfg.is_fallback else str(cfg["padding"].val)


def _columns(cfg: autotvm.ConfigEntity, columns: int) -> int:
    return strip(columns) if cfg.is_fallback else min(columns, int(cfg["columns"].val))


def _rows(cfg: autotvm.ConfigEntity, rows: int, work: int) -> int:
    return rows_per_item(rows, work) if cfg.is_fallback else largest_divisor(rows, int(cfg["rows"].val))


def _item_work(columns: int, channels: int, many: int, window: int, target: tvm.target.Target) -> int:
    """Multiply-adds for one row of one vector of channels."""
    return columns * window * (lanes_for(channels, target) if many == 1 else 1)
