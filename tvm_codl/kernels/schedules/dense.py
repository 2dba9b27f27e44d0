"""Dense layers and batched matrix products: the inner kernel of the convolution over rows of a matrix."""

from __future__ import annotations

import tvm
from tvm import autotvm, te
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.reuse import BATCH_MATMUL, DENSE
from tvm_codl.kernels.schedules import phone_products
from tvm_codl.kernels.schedules.conv2d import lanes_for
from tvm_codl.kernels.schedules.kernel import (
    define_tiles,
    problem_on,
    schedule_fused,
    schedule_inputs,
    schedule_tile,
    tiles_of,
)
from tvm_codl.kernels.schedules.operands import ProductSizes, below, or_zero
from tvm_codl.kernels.target import is_phone
from tvm_codl.kernels.tiles.window import whole_tiles

TAG = "matmul_codl"


@autotvm.register_topi_compute(DENSE)
def dense(cfg: autotvm.ConfigEntity, data: te.Tensor, weight: te.Tensor, out_dtype: str) -> te.Tensor:
    """``data`` (M, K); ``weight`` (N/v, K, v), or (N, K), which is packed as it runs; result (M, N)."""
    if is_phone(tvm.target.Target.current()):
        return phone_products.dense(cfg, data, weight, out_dtype, TAG)
    m, k = get_const_tuple(data.shape)
    if len(weight.shape) == 2:
        n = int(weight.shape[0])
        lanes = lanes_for(n)
        plain = weight
        weight = te.compute(
            (n // lanes, k, lanes), lambda block, r, lane: plain[block * lanes + lane, r], name="packed_weights"
        )
    blocks, _, lanes = get_const_tuple(weight.shape)
    tiles = define_tiles(cfg, problem_on(1, m, blocks * lanes, k, k, lanes))
    whole = whole_tiles(m, tiles.columns)
    rows = data
    if whole != m:
        rows = te.compute((whole, k), lambda i, r: or_zero(data[i, r], below(i, whole, m)), name="rows")
    r = te.reduce_axis((0, k), "k")
    acc = te.compute(
        (whole, blocks, lanes),
        lambda i, block, lane: te.sum(
            rows[i, r].astype(out_dtype) * weight[block, r, lane].astype(out_dtype), axis=[r]
        ),
        name="acc",
    )
    cfg.add_flop(2 * m * k * blocks * lanes)
    return te.compute((m, blocks * lanes), lambda i, j: acc[i, j // lanes, j % lanes], name="dense", tag=TAG)


@autotvm.register_topi_compute(BATCH_MATMUL)
def batch_matmul(
    cfg: autotvm.ConfigEntity, x: te.Tensor, y: te.Tensor, transpose_a: bool, transpose_b: bool, out_dtype: str
) -> te.Tensor:
    """``x`` (B, M, K), or (B, K, M) if ``transpose_a``; ``y`` (B, K, N), or (B, N, K) if ``transpose_b``.

    A batch of 1 on either side is broadcast.  ``y`` is packed as it runs.
    """
    if is_phone(tvm.target.Target.current()):
        return phone_products.batch_matmul(cfg, x, y, transpose_a, transpose_b, out_dtype, TAG)
    sizes = ProductSizes.of(x, y, transpose_a, transpose_b)
    m, n, k = sizes.m, sizes.n, sizes.k
    lanes = lanes_for(n)
    blocks = n // lanes
    packed = te.compute(
        (sizes.batch_y, blocks, k, lanes),
        lambda b, block, r, lane: y[(b, block * lanes + lane, r) if transpose_b else (b, r, block * lanes + lane)],
        name="packed_weights",
    )
    tiles = define_tiles(cfg, problem_on(1, m, n, k, k, lanes))
    whole = whole_tiles(m, tiles.columns)
    rows = x
    if transpose_a or whole != m:
        rows = te.compute(
            (sizes.batch_x, whole, k),
            lambda b, i, r: or_zero(x[(b, r, i) if transpose_a else (b, i, r)], below(i, whole, m)),
            name="rows",
        )
    r = te.reduce_axis((0, k), "k")
    acc = te.compute(
        (sizes.batch, whole, blocks, lanes),
        lambda b, i, block, lane: te.sum(
            rows[sizes.in_x(b), i, r].astype(out_dtype) * packed[sizes.in_y(b), block, r, lane].astype(out_dtype),
            axis=[r],
        ),
        name="acc",
    )
    cfg.add_flop(sizes.flop)
    return te.compute(
        (sizes.batch, m, n), lambda b, i, j: acc[b, i, j // lanes, j % lanes], name="batch_matmul", tag=TAG
    )


def _schedule(cfg: autotvm.ConfigEntity, outs: list[te.Tensor]) -> te.Schedule:
    def schedule(s: te.Schedule, out: te.Tensor, product: te.Tensor) -> None:
        if is_phone(tvm.target.Target.current()):
            phone_products.schedule(cfg, s, out, product)
            return
        (acc,) = product.op.input_tensors
        m, n = get_const_tuple(product.shape)[-2:]
        k = int(acc.op.reduce_axis[0].dom.extent)
        schedule_inputs(s, acc)
        schedule_tile(s, out, acc, tiles_of(cfg, problem_on(1, m, n, k, k, int(acc.shape[-1]))), rows=False)

    return schedule_fused(outs, TAG, schedule)


schedule_dense = autotvm.register_topi_schedule(DENSE, _schedule)
schedule_batch_matmul = autotvm.register_topi_schedule(BATCH_MATMUL, _schedule)
