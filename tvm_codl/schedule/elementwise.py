"""Everything without an inner kernel: element-wise operators, data movement, pooling, reductions, softmax.

One way for all of them, on both processors.  What TVM calls injective is inlined; each stage that is left becomes a
loop nest of its own, whose innermost axis is cut into vectors and whose outer axes are shared out in chunks: a task on
the CPU, a work-item on the GPU.  No stage uses local memory or barriers.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import arith, te, tir
from tvm.topi import tag

from tvm_codl.schedule.target import is_gpu, vector_lanes

FEW = 4  # channels
UNROLL = 32  # vectors of one pixel
CHUNK = 4096  # results per work-item: with fewer, starting it shows


def schedule_stages(outs: list[te.Tensor] | te.Tensor) -> te.Schedule:
    """Any graph of compute stages, correct on both processors."""
    outs = [outs] if isinstance(outs, te.Tensor) else list(outs)
    s = te.create_schedule([t.op for t in outs])
    gpu = is_gpu(tvm.target.Target.current())
    roots = _inline(s, [t.op for t in outs])
    attached = _attached(s, outs, roots)
    for op in roots:
        if op in attached:
            continue
        inner = attached_to(op, attached)
        if op.reduce_axis:
            _schedule_reduction(s, op, gpu)
        elif inner is not None:
            _schedule_epilogue(s, op, inner, gpu)
        else:
            schedule_stage(s, op.output(0), gpu)
    return s


def schedule_stage(s: te.Schedule, stage: te.Tensor, gpu: bool) -> None:
    """A stage without reduction at the root: vectors inside, chunks outside."""
    axes = list(s[stage].op.axis)
    if not axes:
        _scalar(s, stage.op, gpu)
        return
    lanes = stage_lanes(stage.op)
    if lanes == 1 and len(axes) > 1 and _is_flat(stage.op):
        lanes = _lanes(math.prod(_extents(stage.op)), vector_lanes(tvm.target.Target.current()))
        axes = [s[stage].fuse(*axes)]
        extents = [math.prod(_extents(stage.op))]
    else:
        extents = _extents(stage.op)
    if lanes == 1 and len(axes) > 1 and extents[-1] <= FEW and _reads_along_last(stage.op):
        # A loop over three channels is too short for a compiler's vectors; over a row of them it is not.
        axes = [*axes[:-2], s[stage].fuse(*axes[-2:])]
        extents = [*extents[:-2], extents[-2] * extents[-1]]
    pieces = extents[-1] // lanes
    last = _finish(s[stage], axes, extents, lanes, 1, gpu)
    # Written out, the condition of each block of a concatenation is a constant.
    compared = any(_boundaries(part, part.axis[-1].var) for part in _inlined(stage.op) if part.axis)
    if len(axes) > 1 and pieces <= UNROLL and compared:
        s[stage].unroll(last)


def stage_lanes(op: te.ComputeOp) -> int:
    """How many neighbours on the last axis one vector holds; 1 where the expression has no vector form."""
    if not op.axis:
        return 1
    extent = int(op.axis[-1].dom.extent)
    for part in _inlined(op):
        last = part.axis[-1].var if part.axis else None
        if any(t != "float32" for t in _dtypes(part)) or any(_has_scalar_part(body, last) for body in part.body):
            return 1
        extent = math.gcd(extent, *_boundaries(part, last))
    return _lanes(extent, vector_lanes(tvm.target.Target.current()))


def _inlined(op: te.ComputeOp) -> list[te.ComputeOp]:
    """``op`` and the injective stages that are inlined into it."""
    found = [op]
    for part in found:
        inputs = [t.op for t in part.input_tensors if isinstance(t.op, te.ComputeOp)]
        found.extend(i for i in inputs if tag.is_injective(i.tag) and not i.reduce_axis and i not in found)
    return found


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


def _attached(s: te.Schedule, outs: list[te.Tensor], roots: list[te.ComputeOp]) -> dict[te.ComputeOp, te.ComputeOp]:
    """The reduction that the output's element-wise tail continues, if there is one and it has the output's shape."""
    final = outs[0].op
    if len(outs) != 1 or len(roots) != 2 or final.reduce_axis or not final.same_as(roots[0]):
        return {}
    inner = roots[1]
    same = inner.num_outputs == 1 and inner.reduce_axis and _extents(inner) == _extents(final) and inner.axis
    return {inner: final} if same and not _reduces_last(inner) and _used_in_place(s, final, inner) else {}


def attached_to(op: te.ComputeOp, attached: dict[te.ComputeOp, te.ComputeOp]) -> te.ComputeOp | None:
    return next((inner for inner, final in attached.items() if final == op), None)


def _used_in_place(s: te.Schedule, final: te.ComputeOp, inner: te.ComputeOp) -> bool:
    """True if each stage between reads the one before at its own indices."""
    seen: set[te.Operation] = set()

    def visit(op: te.Operation) -> bool:
        if op == inner or not isinstance(op, te.ComputeOp) or op in seen:
            return True
        seen.add(op)
        own = [axis.var for axis in op.axis]
        ok = True

        def check(node: Any) -> None:
            nonlocal ok
            if isinstance(node, tir.ProducerLoad) and (node.producer.op == inner or _reaches(node.producer.op, inner)):
                ok = (
                    ok
                    and len(node.indices) == len(own)
                    and all(i.same_as(v) for i, v in zip(node.indices, own, strict=True))
                )

        for body in op.body:
            tir.stmt_functor.post_order_visit(body, check)
        return ok and all(visit(t.op) for t in op.input_tensors if _reaches(t.op, inner))

    return visit(final)


def _reaches(op: te.Operation, goal: te.Operation) -> bool:
    return op == goal or any(_reaches(t.op, goal) for t in op.input_tensors)


def _schedule_epilogue(s: te.Schedule, op: te.ComputeOp, inner: te.ComputeOp, gpu: bool) -> None:
    lanes = min(stage_lanes(op), stage_lanes(inner))
    at = _finish(s[op], list(s[op].op.axis), _extents(op), lanes, _reduction_size(inner), gpu)
    _accumulate(s, inner.output(0), op.output(0), at, lanes)


def _schedule_reduction(s: te.Schedule, op: te.ComputeOp, gpu: bool) -> None:
    """A reduction whose result goes to memory.  The accumulator stays in registers."""
    if not op.axis or op.num_outputs > 1:
        _plain_reduction(s, op, gpu)
        return
    out = op.output(0)
    by_row = _reduces_last(op)
    lanes = 1 if by_row else stage_lanes(op)
    acc = s.cache_write(out, "local")
    at = _finish(s[out], list(s[out].op.axis), _extents(op), lanes, _reduction_size(op), gpu)
    if by_row:
        _accumulate_row(s, acc, out, at)
    else:
        _accumulate(s, acc, out, at, lanes)


def _plain_reduction(s: te.Schedule, op: te.ComputeOp, gpu: bool) -> None:
    if op.axis:
        _finish(s[op], list(s[op].op.axis), _extents(op), 1, _reduction_size(op), gpu)
    else:
        _scalar(s, op, gpu)


def _accumulate(s: te.Schedule, acc: te.Tensor, out: te.Tensor, at: Any, lanes: int) -> None:
    s[acc].compute_at(s[out], at)
    s[acc].set_scope("local")
    if lanes > 1:
        *outer, last = s[acc].op.axis
        block, lane = s[acc].split(last, lanes)
        s[acc].reorder(*outer, block, *s[acc].op.reduce_axis, lane)
        s[acc].vectorize(lane)


def _accumulate_row(s: te.Schedule, acc: te.Tensor, out: te.Tensor, at: Any) -> None:
    """A row's sum or maximum in as many partial ones as a vector has lanes."""
    s[acc].compute_at(s[out], at)
    k = s[acc].op.reduce_axis[-1]
    extent = int(k.dom.extent) if isinstance(k.dom.extent, tir.IntImm) else 1
    lanes = _lanes(extent, vector_lanes(tvm.target.Target.current()))
    body = s[acc].op.body[0]
    scalar = any(t != "float32" for t in _dtypes(s[acc].op)) or _has_scalar_part(body, k.var)
    if lanes == 1 or scalar:
        return
    _, inner = s[acc].split(k, lanes)
    partial = s.rfactor(acc, inner, len(s[acc].op.axis))
    s[partial].compute_at(s[acc], s[acc].op.axis[-1])
    s[partial].set_scope("local")
    *outer, lane = s[partial].op.axis
    s[partial].reorder(*outer, *s[partial].op.reduce_axis, lane)
    s[partial].vectorize(lane)


def _finish(stage: te.schedule.Stage, axes: list, extents: list[int], lanes: int, work: int, gpu: bool):
    """Cuts ``axes`` into vectors, loops and chunks; returns the axis that encloses one vector.

    Axes inside a chunk stay loops, as a fused index would cost a division for each vector.
    """
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
    if gpu:
        stage.bind(items, te.thread_axis("blockIdx.x"))
    else:
        stage.parallel(items)
    return inside[-1] if inside else inner


def _scalar(s: te.Schedule, op: te.ComputeOp, gpu: bool) -> None:
    if gpu:
        s[op].bind(s[op].fuse(), te.thread_axis("blockIdx.x"))


def _lanes(extent: int, widest: int) -> int:
    return next((n for n in (16, 8, 4) if n <= widest and extent % n == 0), 1)


def _extents(op: te.ComputeOp) -> list[int]:
    return [int(axis.dom.extent) for axis in op.axis]


def _reduction_size(op: te.ComputeOp) -> int:
    extents = [arith.Analyzer().simplify(axis.dom.extent) for axis in op.reduce_axis]
    # Windows of an adaptive pooling differ in size: any will do for an estimate.
    return math.prod(int(e) if isinstance(e, tir.IntImm) else 2 for e in extents)


def _dtypes(op: te.ComputeOp) -> list[str]:
    return [t.dtype for t in op.input_tensors] + [op.output(i).dtype for i in range(op.num_outputs)]


def _depends(expression: Any, var: tir.Var | None) -> bool:
    found = False

    def check(node: Any) -> None:
        nonlocal found
        found = found or (var is not None and isinstance(node, tir.Var) and node.same_as(var))

    tir.stmt_functor.post_order_visit(expression, check)
    return found


def _has_scalar_part(body: Any, var: tir.Var | None) -> bool:
    """True where ``var`` reaches an integer or logical computation on values, which OpenCL vectors do not share."""
    found = False

    def check(node: Any) -> None:
        nonlocal found
        values = isinstance(node, (tir.Cast, tir.Select, tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod))
        whole = values and (isinstance(node, (tir.Cast, tir.Select)) or not node.dtype.startswith("float"))
        found = found or (whole and _depends(node, var))

    tir.stmt_functor.post_order_visit(body, check)
    return found


def _boundaries(op: te.ComputeOp, var: tir.Var | None) -> list[int]:
    """The constants that ``var`` is compared with: where a concatenation changes from one input to the next."""
    found: list[int] = []

    def check(node: Any) -> None:
        if isinstance(node, (tir.LT, tir.LE, tir.GT, tir.GE)):
            sides = (node.a, node.b)
            if any(_depends(x, var) for x in sides):
                constants = [int(x) for x in sides if isinstance(x, tir.IntImm)]
                found.extend(constants or [1])

    for body in op.body:
        tir.stmt_functor.post_order_visit(body, check)
    return found


def _is_flat(op: te.ComputeOp) -> bool:
    """True if the stage, and all that is inlined into it, reads only at its own indices: any cut is then a vector."""
    return not op.reduce_axis and all(_reads_in_place(part) for part in _inlined(op))


def _reads_in_place(op: te.ComputeOp) -> bool:
    if any(t != "float32" for t in _dtypes(op)):
        return False
    own = [axis.var for axis in op.axis]
    flat = True

    def check(node: Any) -> None:
        nonlocal flat
        if isinstance(node, (tir.Cast, tir.Select)):
            flat = False
        if isinstance(node, tir.ProducerLoad):
            whole = [int(d) for d in node.producer.shape] == _extents(op)
            flat = flat and whole and all(i.same_as(v) for i, v in zip(node.indices, own, strict=True))

    for body in op.body:
        tir.stmt_functor.post_order_visit(body, check)
    return flat


def _reads_along_last(op: te.ComputeOp) -> bool:
    """True if neighbours on the last axis are neighbours in everything that is read."""
    along = True

    def visit(part: te.ComputeOp) -> None:
        def check(node: Any) -> None:
            nonlocal along
            if isinstance(node, tir.ProducerLoad) and len(node.indices):
                along = along and part.axis and _depends(node.indices[-1], part.axis[-1].var)

        for body in part.body:
            tir.stmt_functor.post_order_visit(body, check)

    for part in _inlined(op):
        visit(part)
    return bool(along)


def _reduces_last(op: te.ComputeOp) -> bool:
    """True if the reduction runs along the last axis of what it reads, and so along memory."""
    if not op.reduce_axis:
        return False
    var, found = op.reduce_axis[-1].var, False

    def check(node: Any) -> None:
        nonlocal found
        if isinstance(node, tir.ProducerLoad) and len(node.indices):
            found = found or _depends(node.indices[-1], var)

    for body in op.body:
        tir.stmt_functor.post_order_visit(body, check)
    return found
