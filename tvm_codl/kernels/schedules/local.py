"""Convolutions and products on GPUs with local memory: their schedule (:mod:`tvm_codl.kernels.tiles.local_tiles`).

A group brings a tile of inputs and one of weights to local memory, and each work-item keeps a tile of results in
registers.  What is computed is :mod:`.local_products`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import autotvm, te, tir

from tvm_codl.kernels.reuse import LOCAL_BATCH_MATMUL, LOCAL_CONV2D, LOCAL_DENSE
from tvm_codl.kernels.schedules.kernel import schedule_fused
from tvm_codl.kernels.target import gpu_of, is_gpu
from tvm_codl.kernels.tiles.local_tiles import LANES, LocalTiles

TAG = "local_codl"
#: Work-items in a group of the kernel that adds parts up.
ADDERS = 128


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
    # The sum stays in registers, also where it is the result: in memory, each part would wait for the one before.
    if result.op.same_as(out.op):
        result = s.cache_write(out, "local")
    vector = LANES if int(out.shape[-1]) % LANES == 0 else 1
    *outer, c = s[out].op.axis
    c, lane = s[out].split(c, vector)
    item = s[out].fuse(*outer, c)
    grid, thread = s[out].split(item, min(ADDERS, gpu_of(tvm.target.Target.current()).max_group))
    s[out].bind(grid, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    s[out].vectorize(lane)
    s[result].set_scope("local")
    s[result].compute_at(s[out], thread)
    s[result].vectorize(s[result].op.axis[-1])
