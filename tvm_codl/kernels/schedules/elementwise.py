"""Everything without an inner kernel: element-wise operators, data movement, pooling, reductions, softmax.

One schedule for all, on both processors.  Injective stages are inlined; each other stage becomes a loop nest whose
innermost axis is cut into vectors and whose outer axes are shared out: in chunks to the tasks of a CPU, or of one that
plays a GPU, a vector each to the work-items of a GPU (:mod:`.groups`).
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import te, tir
from tvm.topi import tag

from tvm_codl.kernels.schedules import groups, reductions
from tvm_codl.kernels.schedules.access import (
    boundaries,
    dtypes,
    extents_of,
    has_scalar_part,
    inlined,
    is_flat,
    reads_along_last,
    reduces_last,
    reduction_size,
    used_in_place,
)
from tvm_codl.kernels.schedules.softmax import schedule_softmax
from tvm_codl.kernels.target import group_size, is_gpu, vector_lanes
from tvm_codl.kernels.tiles import vectors

FEW = 4  # channels
# PoCL's compiler makes no vectors of integers by itself where they are loaded on a condition.
BYTES = {"int8", "uint8"}
BYTE_WIDTHS = (8, 16)  # TVM takes four bytes for one number of 32 bits, and writes OpenCL that does not compile
UNROLL = 32  # vectors of one pixel
WINDOW = 16  # steps of a reduction that a real GPU unrolls, to have their loads under way together
ROW = 128  # results of a reduction that are kept together
CHUNK = 4096  # results per work-item, so that its start costs little


def schedule_stages(outs: list[te.Tensor] | te.Tensor) -> te.Schedule:
    """Any graph of compute stages, correct on both processors."""
    outs = [outs] if isinstance(outs, te.Tensor) else list(outs)
    s = te.create_schedule([t.op for t in outs])
    roots = _inline(s, [t.op for t in outs])
    if _in_groups() and len(outs) == 1 and schedule_softmax(s, outs[0], roots):
        return s
    inner = _attached(outs, roots)
    if inner is not None:
        _enclose(s, inner.output(0), outs[0], min(stage_lanes(outs[0].op), stage_lanes(inner)))
        return s
    for op in roots:
        if op.reduce_axis:
            _schedule_reduction(s, op)
        else:
            schedule_stage(s, op.output(0))
    return s


def schedule_stage(s: te.Schedule, stage: te.Tensor) -> None:
    """A stage without reduction at the root: vectors inside, chunks outside."""
    axes = list(s[stage].op.axis)
    if not axes:
        _scalar(s, stage.op)
        return
    lanes = stage_lanes(stage.op)
    if lanes == 1 and len(axes) > 1 and is_flat(stage.op):
        lanes = _lanes(math.prod(extents_of(stage.op)))
        axes = [s[stage].fuse(*axes)]
        extents = [math.prod(extents_of(stage.op))]
    else:
        extents = extents_of(stage.op)
    if lanes == 1 and len(axes) > 1 and extents[-1] <= FEW and reads_along_last(stage.op):
        # A loop over three channels is too short to vectorise; one over a row of them is not.
        axes = [*axes[:-2], s[stage].fuse(*axes[-2:])]
        extents = [*extents[:-2], extents[-2] * extents[-1]]
    pieces = extents[-1] // lanes
    last = _finish(s[stage], axes, extents, lanes, 1)
    # Unrolled, the condition of each block of a concatenation is constant.
    compared = any(boundaries(part, part.axis[-1].var) for part in inlined(stage.op) if part.axis)
    if len(axes) > 1 and pieces <= UNROLL and compared and not _in_groups():
        s[stage].unroll(last)


def stage_lanes(op: te.ComputeOp) -> int:
    """How many neighbours on the last axis one vector holds; 1 where the expression has no vector form."""
    if not op.axis:
        return 1
    extent = int(op.axis[-1].dom.extent)
    parts = inlined(op)
    types = {t for part in parts for t in dtypes(part)}
    if len(types) > 1 or not types <= {"float32"} | BYTES:
        return 1
    for part in parts:
        last = part.axis[-1].var if part.axis else None
        if any(has_scalar_part(body, last) for body in part.body):
            return 1
        extent = math.gcd(extent, *boundaries(part, last))
    if types <= BYTES:
        return int(vectors.lanes_for(extent, 4 * vector_lanes(tvm.target.Target.current()), BYTE_WIDTHS))
    return _lanes(extent)


def _inline(s: te.Schedule, outputs: list[te.Operation]) -> list[te.ComputeOp]:
    """Inlines injective stages; the compute stages that are left, outputs first."""
    roots: list[te.ComputeOp] = []
    seen: set[te.Operation] = set()

    def visit(op: te.Operation) -> None:
        if op in seen or not isinstance(op, te.ComputeOp):
            return
        seen.add(op)
        if op not in outputs and tag.is_injective(op.tag) and not op.reduce_axis:
            s[op].compute_inline()
        else:
            roots.append(op)
        for tensor in op.input_tensors:
            visit(tensor.op)

    for op in outputs:
        visit(op)
    return roots


def _attached(outs: list[te.Tensor], roots: list[te.ComputeOp]) -> te.ComputeOp | None:
    """The reduction that the output's element-wise tail continues, if there is one and it has the output's shape."""
    final = outs[0].op
    if len(outs) != 1 or len(roots) != 2 or final.reduce_axis or not final.same_as(roots[0]):
        return None
    inner = roots[1]
    same = inner.num_outputs == 1 and inner.reduce_axis and extents_of(inner) == extents_of(final) and inner.axis
    fits = _in_groups() or not reduces_last(inner)
    return inner if same and fits and used_in_place(final, inner) else None


def _schedule_reduction(s: te.Schedule, op: te.ComputeOp) -> None:
    """A reduction whose result goes to memory.  The accumulator stays in registers."""
    if not op.axis:
        _scalar(s, op)
        return
    if op.num_outputs > 1:
        _finish(s[op], list(s[op].op.axis), extents_of(op), 1, reduction_size(op))
        return
    lanes, out = stage_lanes(op), op.output(0)
    _enclose(s, s.cache_write(out, "local"), out, lanes)


def _enclose(s: te.Schedule, acc: te.Tensor, out: te.Tensor, lanes: int) -> None:
    """Computes ``acc`` where ``out`` needs it: for one vector, or, where no vector divides the last axis, for all of it.
    A real GPU shares a long one among a group's work-items."""
    by_row = reduces_last(acc.op)
    lanes = 1 if by_row else lanes
    if _in_groups() and reductions.shared(s, out, acc, lanes):
        return
    axes, extents, work = list(s[out].op.axis), extents_of(out.op), reduction_size(acc.op)
    s[acc].set_scope("local")
    if by_row:
        _accumulate_row(s, acc, out, _finish(s[out], axes, extents, lanes, work))
    elif lanes == 1 and 1 < extents[-1] <= ROW and len(axes) > 1 and _played():
        s[acc].compute_at(s[out], _finish(s[out], axes[:-1], extents[:-1], 1, extents[-1] * work))
        *outer, last = s[acc].op.axis
        s[acc].reorder(*outer, *s[acc].op.reduce_axis, last)
    else:
        _accumulate(s, acc, out, _finish(s[out], axes, extents, lanes, work), lanes)


def _accumulate(s: te.Schedule, acc: te.Tensor, out: te.Tensor, at: Any, lanes: int) -> None:
    s[acc].compute_at(s[out], at)
    if lanes > 1:
        *outer, last = s[acc].op.axis
        block, lane = s[acc].split(last, lanes)
        s[acc].reorder(*outer, block, *s[acc].op.reduce_axis, lane)
        s[acc].vectorize(lane)
    if _in_groups() and 0 < reductions.length_of(s[acc].op) <= WINDOW:
        for axis in s[acc].op.reduce_axis:
            s[acc].unroll(axis)


def _accumulate_row(s: te.Schedule, acc: te.Tensor, out: te.Tensor, at: Any) -> None:
    """A row's sum or maximum by lanes of a vector, reduced at the end."""
    s[acc].compute_at(s[out], at)
    k = s[acc].op.reduce_axis[-1]
    extent = int(k.dom.extent) if isinstance(k.dom.extent, tir.IntImm) else 1
    lanes = _lanes(extent)
    body = s[acc].op.body[0]
    scalar = any(t != "float32" for t in dtypes(s[acc].op)) or has_scalar_part(body, k.var)
    if lanes == 1 or scalar:
        return
    _, inner = s[acc].split(k, lanes)
    partial = s.rfactor(acc, inner, len(s[acc].op.axis))
    s[partial].compute_at(s[acc], s[acc].op.axis[-1])
    s[partial].set_scope("local")
    *outer, lane = s[partial].op.axis
    s[partial].reorder(*outer, *s[partial].op.reduce_axis, lane)
    s[partial].vectorize(lane)


def _finish(stage: te.schedule.Stage, axes: list, extents: list[int], lanes: int, work: int):
    """Cuts ``axes`` into vectors, loops and chunks; returns the axis that encloses one vector.

    Axes inside a chunk stay loops, as a fused index would cost a division for each vector.
    """
    if _in_groups():
        return groups.spread(stage, axes, extents, lanes)
    axes, extents = list(axes), list(extents)
    if lanes > 1:
        block, lane = stage.split(axes[-1], lanes)
        stage.vectorize(lane)
        axes[-1], extents[-1] = block, extents[-1] // lanes
    room = max(1, CHUNK // (lanes * work))
    inside: list[Any] = []
    while len(axes) > 1 and extents[-1] <= room:
        inside.insert(0, axes.pop())
        room //= extents.pop()
    factor = max(d for d in range(1, max(1, min(room, extents[-1])) + 1) if extents[-1] % d == 0)
    outer, inner = stage.split(axes.pop(), factor)
    items = stage.fuse(*axes, outer)
    share_out(stage, items)
    return inside[-1] if inside else inner


def share_out(stage: te.schedule.Stage, items: te.schedule.IterVar) -> None:
    """One of ``items`` for each group of one work-item, or task of a CPU."""
    if is_gpu(tvm.target.Target.current()):
        stage.bind(items, te.thread_axis("blockIdx.x"))
    else:
        stage.parallel(items)


def _in_groups() -> bool:
    """Whether the current target is a GPU whose work-items come in groups."""
    return group_size(tvm.target.Target.current()) > 1


def _played() -> bool:
    """Whether the current target is a GPU that a CPU plays, whose compiler makes vectors of plain loops."""
    target = tvm.target.Target.current()
    return is_gpu(target) and not _in_groups()


def _scalar(s: te.Schedule, op: te.ComputeOp) -> None:
    if is_gpu(tvm.target.Target.current()):
        s[op].bind(s[op].fuse(), te.thread_axis("blockIdx.x"))


def _lanes(extent: int) -> int:
    return int(vectors.lanes_for(extent, vector_lanes(tvm.target.Target.current()), vectors.STAGE_WIDTHS))
