"""Convolutions and products on GPUs with local memory: what they compute; the schedule is :mod:`.local`'s.

Results lie as (..., y, x, c), weights as (window, k, c): neighbouring work-items read neighbouring channels, so no weight is
packed.  ``acc`` has an axis of parts first, and its rows, columns and channels are whole tiles: what lies outside is
computed on zeros and not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import autotvm, te
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.reuse import LOCAL_BATCH_MATMUL, LOCAL_CONV2D, LOCAL_DENSE
from tvm_codl.kernels.schedules.kernel import distinct
from tvm_codl.kernels.schedules.local import TAG
from tvm_codl.kernels.schedules.operands import ProductSizes, WindowSizes, below, or_zero, within
from tvm_codl.kernels.target import gpu_of, is_gpu
from tvm_codl.kernels.tiles.local_tiles import (
    LocalProblem,
    LocalTiles,
    candidates,
    choose,
    fit,
    window_rows_at_once,
)
from tvm_codl.kernels.tiles.window import reach, whole_tiles

#: Tiles that a tuner tries, the most promising first.
TUNED = 96

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
    sizes = WindowSizes.of((h, w), (kh, kw), strides, padding, dilation)
    top, left, rows, columns = sizes.top, sizes.left, sizes.rows, sizes.columns
    problem = LocalProblem(n, rows, columns, channels, channels_in, kh, kw, sh, sw)
    tiles = _define(cfg, problem)
    high, wide, deep = whole_tiles(rows, tiles.tile[0]), whole_tiles(columns, tiles.tile[1]), _depth(tiles, channels_in)
    # Where a window is one position, positions between strides are not brought.
    (step_y, gap_y), (step_x, gap_x) = ((1, sh) if kh == 1 else (sh, 1)), ((1, sw) if kw == 1 else (sw, 1))
    need_h, need_w = reach(high, step_y, kh, dh), reach(wide, step_x, kw, dw)

    def inside(b: Any, y: Any, x: Any, k: Any) -> Any:
        y, x = y * gap_y - top, x * gap_x - left
        conditions = within((y, top > 0, (need_h - 1) * gap_y - top, h), (x, left > 0, (need_w - 1) * gap_x - left, w))
        return or_zero(data[b, y, x, k], [*conditions, *below(k, tiles.parts * deep, channels_in)])

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
    sizes = ProductSizes.of(x, y, transpose_a, transpose_b)
    m, n, k = sizes.m, sizes.n, sizes.k
    acc = _product(
        cfg, LocalProblem(sizes.batch, 1, m, n, k),
        lambda b, i, r: x[(sizes.in_x(b), *((r, i) if transpose_a else (i, r)))],
        lambda b, r, c: y[(sizes.in_y(b), *((c, r) if transpose_b else (r, c)))], x.dtype, out_dtype,
    )  # fmt: skip
    return _result(acc, (sizes.batch, m, n), lambda part, b, i, j: acc[part, b, 0, i, j])


def _product(
    cfg: autotvm.ConfigEntity, problem: LocalProblem, left: Value, right: Value, dtype: str, out_dtype: str
) -> te.Tensor:
    """(parts, batch, 1, rows, columns) of ``left(b, i, k)`` times ``right(b, k, j)``."""
    tiles = _define(cfg, problem)
    m, k = problem.columns, problem.channels_in
    wide, deep = whole_tiles(m, tiles.tile[1]), _depth(tiles, k)
    high = tiles.tile[0]
    whole = whole_tiles(problem.channels, tiles.tile[2])

    def row(b: Any, y: Any, i: Any, r: Any) -> Any:
        first = [y < 1] if high > 1 else []
        return or_zero(left(b, i, r), [*first, *below(i, wide, m), *below(r, tiles.parts * deep, k)])

    def column(b: Any, r: Any, c: Any) -> Any:
        return or_zero(right(b, r, c), [*below(r, tiles.parts * deep, k), *below(c, whole, problem.channels)])

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
    deep, whole = tiles.parts * _depth(tiles, channels_in), whole_tiles(channels, tiles.tile[2])

    def inside(ry: Any, rx: Any, k: Any, c: Any) -> Any:
        return or_zero(value(ry, rx, k, c), [*below(k, deep, channels_in), *below(c, whole, channels)])

    return te.compute((*window, deep, whole), inside, name="weights")


def _result(acc: te.Tensor, shape: tuple[int, ...], at: Value) -> te.Tensor:
    """What the operators fused behind read: the sum of the parts."""
    parts = int(acc.shape[0])
    if parts == 1:
        return te.compute(shape, lambda *i: at(0, *i), name="result", tag=TAG)
    part = te.reduce_axis((0, parts), "part")
    return te.compute(shape, lambda *i: te.sum(at(part, *i), axis=part), name="result", tag=TAG)


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


def _depth(tiles: LocalTiles, channels_in: int) -> int:
    """Input channels of one part: whole steps."""
    steps = -(-channels_in // tiles.step)
    return -(-steps // tiles.parts) * tiles.step
