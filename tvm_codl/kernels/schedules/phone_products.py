"""Dense layers and batched matrix products on a phone's GPU: the compute and the schedule of :mod:`.dense` there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import autotvm, te
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.schedules.image import fits_image
from tvm_codl.kernels.schedules.kernel import define_tiles, problem_on, tiles_of
from tvm_codl.kernels.schedules.operands import ProductSizes, below, lane_of, or_zero
from tvm_codl.kernels.schedules.phone_kernel import LANES, packed, schedule_tile, step_of, sums
from tvm_codl.kernels.tiles.register_tiles import Problem
from tvm_codl.kernels.tiles.window import whole_tiles

Read = Callable[..., Any]


def dense(cfg: autotvm.ConfigEntity, data: te.Tensor, weight: te.Tensor, out_dtype: str, tag: str) -> te.Tensor:
    """``data`` (M, K); ``weight`` (N/v, K, v) or (N, K); result (M, N).  Weights of one block, (1, K, N), are read as they lie."""
    m, k = get_const_tuple(data.shape)
    lanes = int(weight.shape[2]) if len(weight.shape) == 3 else 0
    n = int(weight.shape[0]) * max(lanes, 1)
    deep = -(-k // LANES) * LANES
    tiles = define_tiles(cfg, _problem(m, n, k))
    rows = _rows((), m, k, whole_tiles(m, tiles.columns), False, data, lambda i, r: data[i, r])
    if lanes == n and n % LANES == 0 and deep == k and not fits_image((k, n // LANES, LANES)):

        def read(r: Any, block: Any, lane: Any) -> Any:
            return weight[0, r, block * LANES + lane]
    else:

        def value(r: Any, j: Any) -> Any:
            here = weight[j // lanes, r, j % lanes] if lanes else weight[j, r]
            return or_zero(here, below(r, deep, k))

        whole = packed(deep, n, value)

        def read(r: Any, block: Any, lane: Any) -> Any:
            return whole[r, block, lane]

    size = step_of(data.dtype, deep)

    def operands(at: Any, r: Any, step: Any) -> tuple[Any, Any]:
        i, block, lane = at
        return rows[i, r * size + step], read(r * size + step, block, lane)

    shape = (int(rows.shape[0]), -(-n // LANES), LANES)
    acc = sums(shape, [te.reduce_axis((0, deep // size), "r")], size, operands, out_dtype, {"step": size})
    cfg.add_flop(2 * m * k * n)
    return te.compute((m, n), lambda i, j: acc[i, j // LANES, lane_of(j, LANES, n)], name="dense", tag=tag)


def batch_matmul(
    cfg: autotvm.ConfigEntity,
    x: te.Tensor,
    y: te.Tensor,
    transpose_a: bool,
    transpose_b: bool,
    out_dtype: str,
    tag: str,
) -> te.Tensor:
    """As :func:`.dense.batch_matmul`; ``y`` (B, K, N) of whole vectors is read as it lies."""
    sizes = ProductSizes.of(x, y, transpose_a, transpose_b)
    m, n, k = sizes.m, sizes.n, sizes.k
    deep, wide = -(-k // LANES) * LANES, -(-n // LANES) * LANES
    tiles = define_tiles(cfg, _problem(m, n, k))
    given: Read = (lambda b, i, r: x[b, r, i]) if transpose_a else (lambda b, i, r: x[b, i, r])
    rows = _rows((sizes.batch_x,), m, k, whole_tiles(m, tiles.columns), transpose_a, x, given)
    right = y
    if transpose_b or (deep, wide) != (k, n):

        def value(b: Any, r: Any, j: Any) -> Any:
            here = y[b, j, r] if transpose_b else y[b, r, j]
            return or_zero(here, [*below(r, deep, k), *below(j, wide, n)])

        right = te.compute((sizes.batch_y, deep, wide), value, name="columns")
    size = step_of(x.dtype, deep)

    def operands(at: Any, r: Any, step: Any) -> tuple[Any, Any]:
        b, i, block, lane = at
        r = r * size + step
        return rows[sizes.in_x(b), i, r], right[sizes.in_y(b), r, block * LANES + lane]

    shape = (sizes.batch, int(rows.shape[1]), wide // LANES, LANES)
    acc = sums(shape, [te.reduce_axis((0, deep // size), "r")], size, operands, out_dtype, {"step": size})
    cfg.add_flop(sizes.flop)
    return te.compute(
        (sizes.batch, m, n),
        lambda b, i, j: acc[b, i, j // LANES, lane_of(j, LANES, n)],
        name="batch_matmul",
        tag=tag,
    )


def schedule(cfg: autotvm.ConfigEntity, s: te.Schedule, out: te.Tensor, product: te.Tensor) -> None:
    (acc,) = product.op.input_tensors
    m, n = get_const_tuple(product.shape)[-2:]
    deep = int(acc.op.reduce_axis[0].dom.extent) * int(acc.op.attrs["step"])
    schedule_tile(s, out, acc, tiles_of(cfg, _problem(m, n, deep)))


def _problem(m: int, n: int, k: int) -> Problem:
    """A product's rows are the columns of its tiles."""
    deep, wide = -(-k // LANES) * LANES, -(-n // LANES) * LANES
    return problem_on(1, m, wide, deep, deep, LANES)


def _rows(batch: tuple[int, ...], m: int, k: int, whole: int, moved: bool, given: te.Tensor, read: Read) -> te.Tensor:
    """``given`` as (batch, ``whole``, K in whole vectors), with zeros behind; itself where it lies so."""
    deep = -(-k // LANES) * LANES
    if (whole, deep) == (m, k) and not moved:
        return given

    def value(*at: Any) -> Any:
        return or_zero(read(*at), [*below(at[-2], whole, m), *below(at[-1], deep, k)])

    return te.compute((*batch, whole, deep), value, name="rows")
