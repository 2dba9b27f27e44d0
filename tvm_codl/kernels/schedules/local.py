"""Convolutions and products on GPUs with local memory: compute and schedule (:mod:`tvm_codl.kernels.tiles.local_tiles`).

Results lie as (..., y, x, c), weights as (window, k, c): neighbouring work-items read neighbouring channels, so no weight is
packed.  ``acc`` has an axis of parts first, and its rows, columns and channels are whole tiles: what lies outside is
computed on zeros and not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import autotvm, te, tir
from tvm.topi.nn.utils import get_pad_tuple
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.reuse import LOCAL_BATCH_MATMUL, LOCAL_CONV2D, LOCAL_DENSE
from tvm_codl.kernels.schedules.kernel import distinct, schedule_fused
from tvm_codl.kernels.target import gpu_of, is_gpu
from tvm_codl.kernels.tiles.local_tiles import (
    LANES,
    LocalProblem,
    LocalTiles,
    candidates,
    choose,
    fit,
    window_rows_at_once,
)
from tvm_codl.kernels.tiles.window import reach

TAG = "local_codl"
#: Tiles that a tuner tries, the most promising first.
TUNED = 96
#: Work-items in a group of the kernel that adds parts up.
ADDERS = 128

# The host's answers are computed vector by vector.
_ON_HOST = LocalTiles(1, 1, 1, 1, 1, 4, 16)

Value = Callable[..., Any]


@autotvm.register_topi_compute(LOCAL_CONV2D)
def conv2d(
    cfg: autotvm.ConfigEntity,
    data: te.Tensor,
    kernel: te.Tensor,
    strides: tuple[int, int],
    padding: tuple[int, ...],
    dilation: tuple[int, int],
    out_dtype: str,
) -> te.Tensor:
    """``data`` (N, H, W, IC); ``kernel`` (KH, KW, IC, OC); result (N, H', W', OC)."""
    n, h, w, channels_in = get_const_tuple(data.shape)
    kh, kw, _, channels = get_const_tuple(kernel.shape)
    (sh, sw), (dh, dw) = strides, dilation
    top, left, bottom, right = get_pad_tuple(padding, ((kh - 1) * dh + 1, (kw - 1) * dw + 1))
    rows = (h + top + bottom - (kh - 1) * dh - 1) // sh + 1
    columns = (w + left + right - (kw - 1) * dw - 1) // sw + 1
    problem = LocalProblem(n, rows, columns, channels, channels_in, kh, kw, sh, sw)
    tiles = _define(cfg, problem)
    high, wide, deep = _whole(rows, tiles.tile[0]), _whole(columns, tiles.tile[1]), _depth(tiles, channels_in)
    # Where a window is one position, positions between strides are not brought.
    (step_y, gap_y), (step_x, gap_x) = ((1, sh) if kh == 1 else (sh, 1)), ((1, sw) if kw == 1 else (sw, 1))
    need_h, need_w = reach(high, step_y, kh, dh), reach(wide, step_x, kw, dw)

    def inside(b: Any, y: Any, x: Any, k: Any) -> Any:
        y, x = y * gap_y - top, x * gap_x - left
        within = _within((y, top > 0, (need_h - 1) * gap_y - top, h), (x, left > 0, (need_w - 1) * gap_x - left, w))
        return _or_zero(data[b, y, x, k], [*within, *_below(k, tiles.parts * deep, channels_in)])

    source = te.compute((n, need_h, need_w, tiles.parts * deep), inside, name="source")
    weights = _weights(lambda ry, rx, k, c: kernel[ry, rx, k, c], (kh, kw), tiles, channels_in, channels, data.dtype)
    ry, rx, k = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx"), te.reduce_axis((0, deep), "k")
    acc = te.compute(
        (tiles.parts, n, high, wide, int(weights.shape[3])),
        lambda part, b, y, x, c: te.sum(
            source[b, y * step_y + ry * dh, x * step_x + rx * dw, part * deep + k].astype(out_dtype)
            * weights[ry, rx, part * deep + k, c].astype(out_dtype),
            axis=[ry, rx, k],
        ),
        name="acc",
        attrs=_attrs(problem, tiles),
    )
    cfg.add_flop(2 * n * rows * columns * channels * kh * kw * channels_in)
    return _result(acc, (n, rows, columns, channels), lambda part, b, y, x, c: acc[part, b, y, x, c])


@autotvm.register_topi_compute(LOCAL_DENSE)
def dense(cfg: autotvm.ConfigEntity, data: te.Tensor, weight: te.Tensor, out_dtype: str) -> te.Tensor:
    """``data`` (M, K); ``weight`` (1, K, N), or (N, K), whose neighbours do not lie together; result (M, N)."""
    m, k = get_const_tuple(data.shape)
    packed = len(weight.shape) == 3
    n = int(weight.shape[2] if packed else weight.shape[0])
    acc = _product(
        cfg, LocalProblem(1, 1, m, n, k), lambda b, i, r: data[i, r],
        lambda b, r, c: weight[0, r, c] if packed else weight[c, r], data.dtype, out_dtype,
    )  # fmt: skip
    return _result(acc, (m, n), lambda part, i, j: acc[part, 0, 0, i, j])


@autotvm.register_topi_compute(LOCAL_BATCH_MATMUL)
def batch_matmul(
    cfg: autotvm.ConfigEntity, x: te.Tensor, y: te.Tensor, transpose_a: bool, transpose_b: bool, out_dtype: str
) -> te.Tensor:
    """``x`` (B, M, K), or (B, K, M) if ``transpose_a``; ``y`` (B, K, N), or (B, N, K) if ``transpose_b``; 1 for B is
    broadcast."""
    batch_x, *shape_x = get_const_tuple(x.shape)
    batch_y, *shape_y = get_const_tuple(y.shape)
    k, m = shape_x if transpose_a else shape_x[::-1]
    n = shape_y[0] if transpose_b else shape_y[1]
    batch = max(batch_x, batch_y)
    acc = _product(
        cfg, LocalProblem(batch, 1, m, n, k),
        lambda b, i, r: x[(b if batch_x > 1 else 0, *((r, i) if transpose_a else (i, r)))],
        lambda b, r, c: y[(b if batch_y > 1 else 0, *((c, r) if transpose_b else (r, c)))], x.dtype, out_dtype,
    )  # fmt: skip
    return _result(acc, (batch, m, n), lambda part, b, i, j: acc[part, b, 0, i, j])


def _product(
    cfg: autotvm.ConfigEntity, problem: LocalProblem, left: Value, right: Value, dtype: str, out_dtype: str
) -> te.Tensor:
    """(parts, batch, 1, rows, columns) of ``left(b, i, k)`` times ``right(b, k, j)``."""
    tiles = _define(cfg, problem)
    m, k = problem.columns, problem.channels_in
    wide, deep = _whole(m, tiles.tile[1]), _depth(tiles, k)
    high = tiles.tile[0]
    whole = _whole(problem.channels, tiles.tile[2])

    def row(b: Any, y: Any, i: Any, r: Any) -> Any:
        first = [y < 1] if high > 1 else []
        return _or_zero(left(b, i, r), [*first, *_below(i, wide, m), *_below(r, tiles.parts * deep, k)])

    def column(b: Any, r: Any, c: Any) -> Any:
        return _or_zero(right(b, r, c), [*_below(r, tiles.parts * deep, k), *_below(c, whole, problem.channels)])

    source = te.compute((problem.batch, high, wide, tiles.parts * deep), row, name="source")
    weights = te.compute((problem.batch, tiles.parts * deep, whole), column, name="weights")
    r = te.reduce_axis((0, deep), "k")
    cfg.add_flop(2 * problem.batch * m * problem.channels * k)
    return te.compute(
        (tiles.parts, problem.batch, high, wide, whole),
        lambda part, b, y, i, c: te.sum(
            source[b, y, i, part * deep + r].astype(out_dtype) * weights[b, part * deep + r, c].astype(out_dtype),
            axis=[r],
        ),
        name="acc",
        attrs=_attrs(problem, tiles),
    )


def _weights(
    value: Value, window: tuple[int, int], tiles: LocalTiles, channels_in: int, channels: int, dtype: str
) -> te.Tensor:
    deep, whole = tiles.parts * _depth(tiles, channels_in), _whole(channels, tiles.tile[2])

    def inside(ry: Any, rx: Any, k: Any, c: Any) -> Any:
        return _or_zero(value(ry, rx, k, c), [*_below(k, deep, channels_in), *_below(c, whole, channels)])

    return te.compute((*window, deep, whole), inside, name="weights")


def _result(acc: te.Tensor, shape: tuple[int, ...], at: Value) -> te.Tensor:
    """What the operators fused behind read: the sum of the parts."""
    parts = int(acc.shape[0])
    if parts == 1:
        return te.compute(shape, lambda *i: at(0, *i), name="result", tag=TAG)
    part = te.reduce_axis((0, parts), "part")
    return te.compute(shape, lambda *i: te.sum(at(part, *i), axis=part), name="result", tag=TAG)


def _schedule(cfg: autotvm.ConfigEntity, outs: Sequence[te.Tensor]) -> te.Schedule:
    def schedule(s: te.Schedule, out: te.Tensor, result: te.Tensor) -> None:
        (acc,) = result.op.input_tensors
        source, weights = acc.op.input_tensors
        if not is_gpu(tvm.target.Target.current()):
            _compute_on_host(s, acc, source, weights)
            return
        tiles, at_once = LocalTiles.parse(acc.op.attrs["tile"]), int(acc.op.attrs["window_rows"])
        if int(acc.shape[0]) == 1:
            _compute_tiles(s, out, acc, source, weights, tiles, at_once)
        else:
            registers = s.cache_write(acc, "local")
            source, weights = registers.op.input_tensors
            _compute_tiles(s, acc, registers, source, weights, tiles, at_once)
            _add_parts(s, out, result)

    return schedule_fused(list(outs), TAG, schedule)


schedule_conv2d = autotvm.register_topi_schedule(LOCAL_CONV2D, _schedule)
schedule_dense = autotvm.register_topi_schedule(LOCAL_DENSE, _schedule)
schedule_batch_matmul = autotvm.register_topi_schedule(LOCAL_BATCH_MATMUL, _schedule)


def _compute_on_host(s: te.Schedule, acc: te.Tensor, source: te.Tensor, weights: te.Tensor) -> None:
    """This computer's answer, with which a GPU's is compared."""
    s[source].compute_inline()
    s[weights].compute_inline()
    registers = s.cache_write(acc, "local")
    *outer, x, c = s[acc].op.axis
    s[acc].parallel(s[acc].fuse(*outer, x))
    s[acc].vectorize(c)
    s[registers].compute_at(s[acc], s[acc].leaf_iter_vars[0])
    *axes, lane = s[registers].op.axis
    s[registers].reorder(*axes, *s[registers].op.reduce_axis, lane)
    s[registers].vectorize(lane)


def _compute_tiles(
    s: te.Schedule,
    out: te.Tensor,
    acc: te.Tensor,
    source: te.Tensor,
    weights: te.Tensor,
    tiles: LocalTiles,
    at_once: int,
) -> None:
    """A group computes a tile of ``out``, its results in ``acc``, which is in registers."""
    *outer, x, c = s[out].op.axis
    y = outer.pop() if len(s[out].op.axis) > 3 else None
    tile_y, tile_x, tile_c = tiles.tile
    vector = LANES if int(out.shape[-1]) % LANES == 0 else 1
    groups_c, c = s[out].split(c, tile_c)
    # Blocks of one work-item lie a whole group apart, so that neighbours read neighbouring words of local memory.
    block, c = s[out].split(c, tiles.channels * LANES)
    item_c, lane = s[out].split(c, LANES)
    groups_x, x = s[out].split(x, tile_x)
    item_x, x = s[out].split(x, tiles.columns)
    positions, items, inner = [groups_x], [item_x], [x]
    if y is not None:
        groups_y, y = s[out].split(y, tile_y)
        item_y, y = s[out].split(y, tiles.rows)
        positions, items, inner = [groups_y, groups_x], [item_y, item_x], [y, x]
    s[out].reorder(*outer, *positions, groups_c, *items, item_c, *inner, block, lane)
    if vector > 1:
        s[out].vectorize(lane)
    for axis in (*inner, block):
        s[out].unroll(axis)
    position = s[out].fuse(*items) if len(items) > 1 else items[0]
    tile = s[out].fuse(*outer, *positions)
    s[out].bind(tile, te.thread_axis("blockIdx.y"))
    s[out].bind(groups_c, te.thread_axis("blockIdx.x"))
    down = te.thread_axis((0, tiles.across * tiles.down), "threadIdx.y")
    along = te.thread_axis((0, tiles.channels), "threadIdx.x")
    s[out].bind(position, down)
    s[out].bind(item_c, along)
    s[acc].set_scope("local")
    s[acc].compute_at(s[out], item_c)
    at, fourth = _order_steps(s, acc, tiles, at_once)
    cached = s.cache_read(source, "local", [acc]) if fourth is not None else None
    if cached is not None:
        s[cached].compute_at(s[acc], fourth)
        *rest, last = s[cached].op.axis
        for axis in rest:
            s[cached].unroll(axis)
        s[cached].vectorize(last)
    for stage in (source, weights):
        s[stage].set_scope("shared")
        s[stage].compute_at(s[acc], at)
        _bring(s, stage, tiles, down, along)


def _order_steps(s: te.Schedule, acc: te.Tensor, tiles: LocalTiles, at_once: int) -> tuple[Any, Any]:
    """Orders the loops of ``acc``; returns the one at which local memory is filled, and that of four input channels."""
    *axes, c = s[acc].op.axis
    *window, k = s[acc].op.reduce_axis
    block, lane = s[acc].split(c, LANES)
    step, k = s[acc].split(k, tiles.step)
    fourth = None
    inner = [k]
    if tiles.step % LANES == 0:
        fourth, k = s[acc].split(k, LANES)
        inner = [fourth, k]
    s[acc].reorder(step, *window, *inner, *axes, block, lane)
    for axis in (*inner, *axes, block):
        s[acc].unroll(axis)
    s[acc].vectorize(lane)
    per_row = bool(window) and at_once < int(window[0].dom.extent)
    return (window[0] if per_row else step), fourth


def _bring(s: te.Schedule, stage: te.Tensor, tiles: LocalTiles, down: Any, along: Any) -> None:
    """All work-items of a group fill ``stage`` together, in vectors where it is read along memory."""
    item = s[stage].fuse(*s[stage].op.axis)
    vector = LANES if _reads_vectors(stage) and tiles.step % LANES == 0 else 1
    item, lane = s[stage].split(item, vector)
    item, across = s[stage].split(item, tiles.channels)
    item, below = s[stage].split(item, tiles.across * tiles.down)
    s[stage].bind(across, along)
    s[stage].bind(below, down)
    s[stage].vectorize(lane)


def _reads_vectors(stage: te.Tensor) -> bool:
    """Whether ``stage``'s last axis is the last of what it reads, in whole vectors."""
    last = stage.op.axis[-1].var
    loads: list[tir.ProducerLoad] = []
    tir.stmt_functor.post_order_visit(
        stage.op.body[0], lambda node: loads.append(node) if isinstance(node, tir.ProducerLoad) else None
    )
    return all(load.indices[-1].same_as(last) and int(load.producer.shape[-1]) % LANES == 0 for load in loads)


def _add_parts(s: te.Schedule, out: te.Tensor, result: te.Tensor) -> None:
    """The kernel that adds parts up and does what is fused behind."""
    vector = LANES if int(out.shape[-1]) % LANES == 0 else 1
    *outer, c = s[out].op.axis
    c, lane = s[out].split(c, vector)
    item = s[out].fuse(*outer, c)
    grid, thread = s[out].split(item, min(ADDERS, gpu_of(tvm.target.Target.current()).max_group))
    s[out].bind(grid, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    s[out].vectorize(lane)
    if not result.op.same_as(out.op):
        s[result].set_scope("local")
        s[result].compute_at(s[out], thread)
        s[result].vectorize(s[result].op.axis[-1])


def _define(cfg: autotvm.ConfigEntity, problem: LocalProblem) -> LocalTiles:
    """Declares the knob to AutoTVM and returns the tiles that ``cfg`` stands for."""
    target = tvm.target.Target.current()
    if not is_gpu(target):
        return fit(_ON_HOST, problem)
    gpu = gpu_of(target)
    cfg.define_knob("tile", distinct(*(tiles.word() for tiles in candidates(problem, gpu, TUNED))))
    if cfg.is_fallback:
        return choose(problem, gpu)
    return fit(LocalTiles.parse(cfg["tile"].val), problem)


def _attrs(problem: LocalProblem, tiles: LocalTiles) -> dict[str, Any]:
    """What the schedule must know."""
    memory = gpu_of(tvm.target.Target.current()).local_memory
    return {"tile": tiles.word(), "window_rows": window_rows_at_once(problem, tiles, memory)}


def _whole(extent: int, tile: int) -> int:
    return -(-extent // tile) * tile


def _depth(tiles: LocalTiles, channels_in: int) -> int:
    """Input channels of one part: whole steps."""
    steps = -(-channels_in // tiles.step)
    return -(-steps // tiles.parts) * tiles.step


def _below(index: Any, whole: int, extent: int) -> list[Any]:
    return [index < extent] if whole > extent else []


def _within(*axes: tuple[Any, bool, int, int]) -> list[Any]:
    """For (index, whether it may be negative, its largest value, the extent): the conditions to be inside."""
    conditions = []
    for index, negative, largest, extent in axes:
        conditions += [index >= 0] if negative else []
        conditions += [index < extent] if largest >= extent else []
    return conditions


def _or_zero(value: Any, conditions: list[Any]) -> Any:
    if not conditions:
        return value
    return tir.if_then_else(tir.all(*conditions), value, tir.const(0, value.dtype))
