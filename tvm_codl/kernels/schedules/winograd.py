"""Convolution of 3 x 3 windows by Winograd's minimal filtering (:mod:`..tiles.winograd`), for a CPU and one that plays a GPU.

Four steps: zeros around the input, the transform of what each tile reads, matrix products, and the transform of their
results, where bias, residual and activation are fused in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relay, te, tir
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.schedules.elementwise import schedule_stage, share_out
from tvm_codl.kernels.schedules.kernel import problem_on, schedule_fused
from tvm_codl.kernels.schedules.operands import WindowSizes
from tvm_codl.kernels.schedules.window import TAG, padded
from tvm_codl.kernels.target import has_local_memory, is_gpu, is_phone, vector_lanes
from tvm_codl.kernels.tiles import vectors, winograd
from tvm_codl.kernels.tiles.winograd import WINDOW, Convolutions, Cut


def packed(attrs: Any, inputs: Any, tinfos: Any, out_type: Any, lanes: int) -> relay.Expr | None:
    """The convolution with transformed weights, where it pays; its weights must be a constant."""
    target = tvm.target.Target.current()
    plain = [int(n) for n in (*attrs.kernel_size, *attrs.strides, *attrs.dilation)] == [WINDOW, WINDOW, 1, 1, 1, 1]
    batch, rows, columns, channels = (int(d) for d in out_type.shape)
    real = is_phone(target) or has_local_memory(target)
    if not plain or batch > 1 or real:
        return None
    one = Convolutions(rows, columns, int(tinfos[0].shape[3]), channels, lanes)
    m = int(winograd.size_of(one, is_gpu(target)))
    weights = _value(inputs[1], (WINDOW, WINDOW, one.channels_in, channels)) if m else None
    if weights is None:
        return None
    made = relay.const(winograd.transformed(weights, m, lanes))
    return relay.nn.contrib_conv2d_winograd_without_weight_transform(
        inputs[0], made, m, attrs.strides, attrs.padding, attrs.dilation, 1, channels, attrs.kernel_size,
        "NHWC", "HWIO", attrs.out_layout, attrs.out_dtype,
    )  # fmt: skip


def _value(weights: relay.Expr, shape: tuple[int, ...]) -> np.ndarray | None:
    """A constant's value, zeros for what stands for one; None for weights that are known only as the network runs."""
    if isinstance(weights, relay.Constant):
        return weights.data.numpy()
    given = weights.args[0] if isinstance(weights, relay.Call) and weights.op.name == "nn.pad" else weights
    stands_in = isinstance(given, relay.Var) and given.name_hint.startswith(winograd.STAND_IN)
    return np.zeros(shape, "float32") if stands_in else None


def conv2d(attrs: Any, inputs: Any, out_type: Any) -> list[te.Tensor]:
    """``data`` (1, H, W, IC); weights ((m + 2)², OC/v, IC, v) as :func:`.winograd.transformed` makes them."""
    data, weights = inputs
    m = int(attrs.tile_size)
    channels_in, lanes = get_const_tuple(weights.shape)[2:]
    padding = get_const_tuple(attrs.padding)
    sizes = WindowSizes.of(get_const_tuple(data.shape)[1:3], (WINDOW, WINDOW), (1, 1), padding, (1, 1))
    _, rows, columns, channels = get_const_tuple(out_type.shape)
    cut = _cut(m, rows, columns, channels_in, channels, lanes)
    source = padded(data, sizes.top, sizes.left, cut.rows * m + WINDOW - 1, cut.across * m + WINDOW - 1)
    a, many = m + WINDOW - 1, cut.rows * cut.across if cut.group else cut.tiles
    k = te.reduce_axis((0, channels_in), "k")
    down = te.compute(
        (many, a, a, channels_in),
        lambda t, y, x, c: _combination(
            "B", m, y, [source[0, t // cut.across * m + i, t % cut.across * m + x, c] for i in range(a)]
        ),
        name="read_down",
    )
    read = te.compute(
        (a * a, many, channels_in),
        lambda e, t, c: _combination("B", m, e % a, [down[t, e // a, j, c] for j in range(a)]),
        name="read",
    )
    acc = te.compute(
        (a * a, many, channels // lanes, lanes),
        lambda e, t, block, lane: te.sum(read[e, t, k] * weights[e, block, k, lane], axis=[k]),
        name="acc",
    )
    up = te.compute(
        (many, m, a, channels),
        lambda t, y, x, c: _combination("A", m, y, [acc[p * a + x, t, c // lanes, c % lanes] for p in range(a)]),
        name="written_down",
    )
    written = te.compute(
        (many, m, m, channels),
        lambda t, y, x, c: _combination("A", m, x, [up[t, y, q, c] for q in range(a)]),
        name="written",
    )
    return [
        te.compute(
            (1, rows, columns, channels),
            lambda b, y, x, c: written[y // m * cut.across + x // m, y % m, x % m, c],
            name="conv2d",
            tag=TAG,
            attrs={"cut": [cut.m, cut.group, cut.columns, cut.blocks, lanes]},
        )
    ]


_COMBINATION = "tir.codl_combination"
tvm.ir.register_op_attr(_COMBINATION, "TCallEffectKind", tir.expr.CallEffectKind.Pure)
tvm.ir.register_op_attr(_COMBINATION, "TVectorizable", True)
tvm.ir.register_op_attr(_COMBINATION, "TScriptPrinterName", "codl_combination")


def _combination(matrix: str, m: int, column: tir.PrimExpr, values: list[tir.PrimExpr]) -> tir.PrimExpr:
    """The sum of ``values`` times a column of A or B, whose number is known once loops are unrolled.

    As a sum over a matrix whose elements are selected, TVM simplifies each element where it is used, which took most of the
    time to compile a kernel, and products with zeros and ones stay.
    """
    return tir.Call("float32", _COMBINATION, ["AB".index(matrix), m, column, *values])


@tvm.ir.register_intrin_lowering(_COMBINATION, "default")
def _sum(call: tir.Call) -> tir.PrimExpr:
    given = [argument.value if isinstance(argument, tir.Broadcast) else argument for argument in call.args[:3]]
    matrix, m, column = (int(number) for number in given)
    terms = zip(winograd.matrices(m)[matrix][:, column].tolist(), call.args[3:], strict=True)
    # Each column has a one: the sum begins there.
    (_, total), *others = sorted((term for term in terms if term[0]), key=lambda term: term[0] != 1)
    for factor, value in others:
        if factor in (1, -1):
            total = total + value if factor == 1 else total - value
        else:
            total = total + value * tir.const(factor, value.dtype)
    return total


def _cut(m: int, rows: int, columns: int, channels_in: int, channels: int, lanes: int) -> Cut:
    like = problem_on(rows, columns, channels, channels_in, channels_in, lanes)
    one = Convolutions(rows, columns, channels_in, channels, lanes)
    return winograd.cut(one, m, like, is_gpu(tvm.target.Target.current()))


def schedule_conv2d(attrs: Any, outs: Any, target: tvm.target.Target) -> te.Schedule:
    with target:
        return schedule_fused(outs, TAG, _schedule)


def _schedule(s: te.Schedule, out: te.Tensor, conv: te.Tensor) -> None:
    m, group, columns, blocks, lanes = (int(n) for n in conv.op.attrs["cut"])
    (written,) = conv.op.input_tensors
    (up,) = written.op.input_tensors
    (acc,) = up.op.input_tensors
    read = acc.op.input_tensors[0]
    (down,) = read.op.input_tensors
    (source,) = down.op.input_tensors
    if isinstance(source.op, te.ComputeOp):
        schedule_stage(s, source)
    batch, y, x, c = s[out].op.axis
    block, lane = s[out].split(c, lanes)
    (y, y_inner), (x, x_inner) = s[out].split(y, m), s[out].split(x, m)
    y, row = s[out].split(y, group or 1)
    s[out].reorder(batch, y, row, x, block, y_inner, x_inner, lane)
    s[out].unroll(y_inner)
    s[out].unroll(x_inner)
    s[out].vectorize(lane)
    _transform(s, written, s[out], block, lanes)
    _transform(s, up, s[out], block, lanes)
    gpu = is_gpu(tvm.target.Target.current())
    item = s[out].fuse(batch, y, row, x) if gpu else s[out].fuse(batch, y)
    share_out(s[out], item)
    task = _schedule_products(s, acc, columns, blocks)
    tile = _schedule_read(s, read, down)
    if group:
        s[acc].compute_at(s[out], item)
        s[read].compute_at(s[out], item)
    else:
        share_out(s[acc], task)
        share_out(s[read], tile)


def _schedule_products(s: te.Schedule, acc: te.Tensor, columns: int, blocks: int) -> te.schedule.IterVar:
    """Returns the axis of its tasks: blocks of channels of each point."""
    sums = s.cache_write(acc, "local")
    point, tile, block, lane = s[acc].op.axis
    strip, tile = s[acc].split(tile, columns)
    block, inner = s[acc].split(block, blocks)
    s[acc].reorder(point, block, strip, tile, inner, lane)
    task = s[acc].fuse(point, block)
    s[sums].compute_at(s[acc], strip)
    *outer, last = s[sums].op.axis
    s[sums].reorder(*s[sums].op.reduce_axis, *outer, last)
    for stage, axes, vector in ((acc, (tile, inner), lane), (sums, outer, last)):
        for axis in axes:
            s[stage].unroll(axis)
        s[stage].vectorize(vector)
    return task


def _schedule_read(s: te.Schedule, read: te.Tensor, down: te.Tensor) -> te.schedule.IterVar:
    """Returns the axis of tiles."""
    lanes = int(vectors.lanes_for(int(read.shape[2]), vector_lanes(tvm.target.Target.current()), vectors.STAGE_WIDTHS))
    point, tile, c = s[read].op.axis
    block, lane = s[read].split(c, lanes)
    s[read].reorder(tile, block, point, lane)
    s[read].unroll(point)
    s[read].vectorize(lane)
    _transform(s, down, s[read], block, lanes)
    return tile


def _transform(s: te.Schedule, made: te.Tensor, by: te.schedule.Stage, at: te.schedule.IterVar, lanes: int) -> None:
    """Makes one vector of a tile where ``by`` needs it, in registers."""
    s[made].compute_at(by, at)
    s[made].set_scope("local")
    tile, y, x, c = s[made].op.axis
    block, lane = s[made].split(c, lanes)
    s[made].reorder(tile, block, x, y, lane)
    for axis in (x, y):
        s[made].unroll(axis)
    s[made].vectorize(lane)
