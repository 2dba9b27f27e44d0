"""Reductions on a real GPU whose results are too few to keep it busy: a group shares the work of each.

Each work-item reduces a part into registers and puts it into local memory; behind a barrier the parts meet.  TVM's own
reduction across work-items has no barrier within a warp, which a device that does not run warps in step needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import tvm
from tvm import te, tir

from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.schedules.access import dtypes, extents_of, has_scalar_part, reduces_last
from tvm_codl.kernels.schedules.groups import spread
from tvm_codl.kernels.target import gpu_of

#: Fewest values that are worth a work-item of their own.
PART = 4
#: Fewest work-items that share a row: with fewer, neighbours read too far apart.
SHARERS = 8
#: Loops of up to so many steps are unrolled.
UNROLL = 16
#: Steps of one work-item beyond which a kernel before this one makes sums of parts.
STEPS = 128


class Share(msgspec.Struct, frozen=True):
    """A group has ``parts`` work-items for each of ``results`` neighbours (vectors of them, where columns are reduced)."""

    parts: int
    results: int


def row_share(gpu: Gpu, length: int, rows: Sequence[int], lanes: int) -> Share | None:
    """For rows of ``length`` values, read in vectors of ``lanes``; None where each suits one work-item."""
    parts = _power(min(gpu.group, length // lanes))
    share = Share(parts, max(1, min(rows[row_axis(rows)], gpu.group // parts)))
    return share if parts >= SHARERS and _fills(share, gpu, math.prod(rows)) else None


def column_share(gpu: Gpu, length: int, vectors: int, batch: int) -> Share | None:
    """For ``batch`` times ``vectors`` neighbouring columns of ``length`` values; None where they are enough as they are."""
    most = _power(length // PART)
    if most < 2 or batch * vectors >= gpu.units * gpu.group:
        return None
    results = max(d for d in range(1, gpu.group // 2 + 1) if vectors % d == 0)
    while results % 2 == 0 and batch * vectors < gpu.units * results and gpu.group // results < most:
        results //= 2
    share = Share(min(most, _power(gpu.group // results)), results)
    return share if _fills(share, gpu, batch * vectors) else None


def _fills(share: Share, gpu: Gpu, results: int) -> bool:
    """Whether groups have a warp of work-items, or there is only one group."""
    return share.parts * share.results >= min(gpu.warp, gpu.group) or results <= share.results


def row_axis(extents: Sequence[int]) -> int:
    """The axis along which neighbouring rows share a group: the last that is longer than 1."""
    return max((i for i, extent in enumerate(extents) if extent > 1), default=len(extents) - 1)


def shared(s: te.Schedule, out: te.Tensor, acc: te.Tensor, lanes: int) -> bool:
    """Schedules the reduction ``acc``, and ``out`` that reads it at its own indices, by groups; False where that is idle.

    ``lanes`` results lie in one vector.
    """
    gpu, extents = gpu_of(tvm.target.Target.current()), extents_of(acc.op)
    length = length_of(acc.op)
    if not length:
        return False
    if reduces_last(acc.op):
        along = row_lanes(acc.op, gpu.lanes)
        share = row_share(gpu, length, extents, along)
        if share is not None:
            _share_rows(s, out, acc, share, along)
    else:
        vectors, batch = extents[-1] // lanes, math.prod(extents[:-1])
        share = column_share(gpu, length, vectors, batch)
        if share is not None and (slices := slices_of(gpu, length, vectors * batch, share)):
            length = _sum_slices(s, acc, lanes, slices)
            share = column_share(gpu, length, vectors, batch)
        if share is not None:
            _share_columns(s, out, acc, share, lanes)
    return share is not None


def length_of(op: te.ComputeOp) -> int:
    """Values behind one result; 0 where that differs between results."""
    extents = [axis.dom.extent for axis in op.reduce_axis]
    return math.prod(int(e) for e in extents) if all(isinstance(e, tir.IntImm) for e in extents) else 0


def row_lanes(op: te.ComputeOp, widest: int) -> int:
    """The vector in which a row is read."""
    k = op.reduce_axis[-1]
    scalar = any(t != "float32" for t in dtypes(op)) or any(has_scalar_part(body, k.var) for body in op.body)
    return 1 if scalar or int(k.dom.extent) % widest else widest


def _share_rows(s: te.Schedule, out: te.Tensor, acc: te.Tensor, share: Share, lanes: int) -> None:
    part = te.thread_axis("threadIdx.x")
    row = bind_rows(s[out], list(s[out].op.axis), share)
    s[out].set_store_predicate(part.var.equal(0))
    reduce_rows(s, acc, s[out], row, part, share, lanes)


def bind_rows(stage: te.schedule.Stage, rows: list[Any], share: Share, *inside: Any) -> Any:
    """``share.results`` of ``rows`` for each group; returns their axis."""
    at = row_axis([int(axis.dom.extent) for axis in rows])
    rows[at], row = stage.split(rows[at], share.results)
    stage.reorder(*rows, row, *inside)
    stage.bind(stage.fuse(*rows), te.thread_axis("blockIdx.x"))
    stage.bind(row, te.thread_axis("threadIdx.y"))
    return row


def reduce_rows(
    s: te.Schedule, acc: te.Tensor, stage: te.schedule.Stage, row: Any, part: Any, share: Share, lanes: int
) -> None:
    """``acc`` at axis ``row`` of ``stage``: every work-item gets its row's result."""
    inner = s[acc].fuse(*s[acc].op.reduce_axis)
    if lanes > 1:
        inner, _ = s[acc].split(inner, lanes)
    _, which = s[acc].split(inner, share.parts)
    parts = s.rfactor(acc, which)
    own = s.cache_write(parts, "local")
    vector = s.rfactor(own, s[own].op.reduce_axis[-1], len(s[own].op.axis)) if lanes > 1 else None
    s[acc].compute_at(stage, row)
    s[acc].set_scope("local")
    _unroll(s[acc])
    s[parts].compute_at(stage, row)
    s[parts].set_scope("shared")
    which, *rows = s[parts].op.axis
    at = row_axis([int(axis.dom.extent) for axis in rows])
    # TVM cannot bind an axis that starts elsewhere than at 0; what it is split into does.
    own_row, rows[at] = s[parts].split(rows[at], nparts=share.results)
    s[parts].reorder(own_row, which, *rows)
    s[parts].bind(own_row, te.thread_axis("threadIdx.y"))
    s[parts].bind(which, part)
    s[own].compute_at(s[parts], rows[-1])
    if vector is not None:
        s[vector].compute_at(s[own], s[own].op.axis[-1])
        s[vector].set_scope("local")
        *outer, lane = s[vector].op.axis
        s[vector].reorder(*outer, *s[vector].op.reduce_axis, lane)
        s[vector].vectorize(lane)
        _unroll(s[own])


def _share_columns(s: te.Schedule, out: te.Tensor, acc: te.Tensor, share: Share, lanes: int) -> None:
    *outer, last = s[out].op.axis
    block, lane = s[out].split(last, lanes)
    blocks, block = s[out].split(block, share.results)
    group = s[out].fuse(*outer, blocks)
    s[out].bind(group, te.thread_axis("blockIdx.x"))
    s[out].bind(block, te.thread_axis("threadIdx.x"))
    s[out].vectorize(lane)
    part = te.thread_axis("threadIdx.y")
    s[out].set_store_predicate(part.var.equal(0))
    _, which = s[acc].split(s[acc].fuse(*s[acc].op.reduce_axis), share.parts)
    parts = s.rfactor(acc, which)
    own = s.cache_write(parts, "local")
    s[acc].compute_at(s[out], block)
    s[acc].set_scope("local")
    _in_vectors(s[acc], lanes)
    _unroll(s[acc])
    s[parts].compute_at(s[out], group)
    s[parts].set_scope("shared")
    which, *outer, last = s[parts].op.axis
    block, lane = s[parts].split(last, lanes)
    block, rest = s[parts].split(block, nparts=share.results)
    s[parts].reorder(which, block, *outer, rest, lane)
    s[parts].bind(which, part)
    s[parts].bind(block, te.thread_axis("threadIdx.x"))
    s[parts].vectorize(lane)
    s[own].compute_at(s[parts], rest)
    _in_vectors(s[own], lanes)


def slices_of(gpu: Gpu, length: int, columns: int, share: Share) -> int:
    """Into how many slices another kernel cuts ``columns`` columns of ``length`` values; 0 where ``share`` will do."""
    if length <= max(STEPS * share.parts, STEPS * 2 * PART):
        return 0
    return _power(min(length // STEPS, max(2 * PART, 2 * gpu.units * gpu.group // columns)))


def _sum_slices(s: te.Schedule, acc: te.Tensor, lanes: int, slices: int) -> int:
    """A kernel of its own reduces each of ``slices`` slices; ``acc`` is left with as many values, which it returns."""
    _, which = s[acc].split(s[acc].fuse(*s[acc].op.reduce_axis), slices)
    sums = s.rfactor(acc, which)
    own = s.cache_write(sums, "local")
    item = spread(s[sums], list(s[sums].op.axis), extents_of(sums.op), lanes)
    s[own].compute_at(s[sums], item)
    _in_vectors(s[own], lanes)
    return slices


def _in_vectors(stage: te.schedule.Stage, lanes: int) -> None:
    *outer, last = stage.op.axis
    block, lane = stage.split(last, lanes)
    stage.reorder(*outer, block, *stage.op.reduce_axis, lane)
    stage.vectorize(lane)


def _unroll(stage: te.schedule.Stage) -> None:
    (k,) = stage.op.reduce_axis
    if int(k.dom.extent) <= UNROLL:
        stage.unroll(k)


def _power(size: int) -> int:
    """The largest power of two up to ``size``; 1 below 1."""
    return 1 << max(0, size.bit_length() - 1)
