"""How a compute stage reads its inputs: whether its loops vectorise, and along which axis memory is contiguous."""

from __future__ import annotations

import math
from typing import Any

from tvm import arith, te, tir
from tvm.topi import tag


def inlined(op: te.ComputeOp) -> list[te.ComputeOp]:
    """``op`` and the injective stages that are inlined into it."""
    stages = [op]
    for part in stages:
        inputs = [t.op for t in part.input_tensors if isinstance(t.op, te.ComputeOp)]
        stages.extend(i for i in inputs if tag.is_injective(i.tag) and not i.reduce_axis and i not in stages)
    return stages


def used_in_place(final: te.ComputeOp, inner: te.ComputeOp) -> bool:
    """True if each stage from ``inner`` to ``final`` reads the one before at its own indices."""
    between = _between(final, inner)
    return all(
        _at_own_indices(op, load)
        for op in between
        for load in _loads(op)
        if load.producer.op == inner or load.producer.op in between
    )


def _at_own_indices(op: te.ComputeOp, load: tir.ProducerLoad) -> bool:
    own = [axis.var for axis in op.axis]
    return len(load.indices) == len(own) and all(i.same_as(v) for i, v in zip(load.indices, own, strict=True))


def _between(final: te.ComputeOp, inner: te.ComputeOp) -> set[te.Operation]:
    """The stages on the paths from ``inner``, without it, to ``final``, with it."""
    between: set[te.Operation] = set()
    seen: dict[te.Operation, bool] = {inner: True}

    def reaches(op: te.Operation) -> bool:
        if op not in seen:
            seen[op] = False
            reached = [reaches(t.op) for t in op.input_tensors]  # all of them: each may lie on another path
            seen[op] = any(reached)
            if seen[op]:
                between.add(op)
        return seen[op]

    reaches(final)
    return between


def _nodes(*expressions: Any) -> list[Any]:
    nodes: list[Any] = []
    for expression in expressions:
        tir.stmt_functor.post_order_visit(expression, nodes.append)
    return nodes


def _loads(op: te.ComputeOp) -> list[tir.ProducerLoad]:
    return [node for node in _nodes(*op.body) if isinstance(node, tir.ProducerLoad)]


def extents_of(op: te.ComputeOp) -> list[int]:
    return [int(axis.dom.extent) for axis in op.axis]


def reduction_size(op: te.ComputeOp) -> int:
    extents = [arith.Analyzer().simplify(axis.dom.extent) for axis in op.reduce_axis]
    # Windows of an adaptive pooling differ in size: any will do for an estimate.
    return math.prod(int(e) if isinstance(e, tir.IntImm) else 2 for e in extents)


def dtypes(op: te.ComputeOp) -> list[str]:
    return [t.dtype for t in op.input_tensors] + [op.output(i).dtype for i in range(op.num_outputs)]


def _depends(expression: Any, var: tir.Var | None) -> bool:
    return var is not None and any(isinstance(node, tir.Var) and node.same_as(var) for node in _nodes(expression))


def has_scalar_part(body: Any, var: tir.Var | None) -> bool:
    """True where ``var`` reaches an integer or logical computation on values, which OpenCL vectors do not share."""
    divisions = (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod)
    return any(
        (
            isinstance(node, (tir.Cast, tir.Select))
            or (isinstance(node, divisions) and not node.dtype.startswith("float"))
        )
        and _depends(node, var)
        for node in _nodes(body)
    )


def boundaries(op: te.ComputeOp, var: tir.Var | None) -> list[int]:
    """The constants that ``var`` is compared with: where a concatenation changes from one input to the next."""
    constants: list[int] = []
    for node in _nodes(*op.body):
        if isinstance(node, (tir.LT, tir.LE, tir.GT, tir.GE)) and (_depends(node.a, var) or _depends(node.b, var)):
            constants += [int(x) for x in (node.a, node.b) if isinstance(x, tir.IntImm)] or [1]
    return constants


def is_flat(op: te.ComputeOp) -> bool:
    """True if the stage, and all that is inlined into it, reads only at its own indices: any cut is then a vector."""
    return not op.reduce_axis and all(_reads_in_place(part) for part in inlined(op))


def _reads_in_place(op: te.ComputeOp) -> bool:
    own = [axis.var for axis in op.axis]
    if any(t != "float32" for t in dtypes(op)) or any(has_scalar_part(body, var) for body in op.body for var in own):
        return False
    return all(
        [int(d) for d in load.producer.shape] == extents_of(op) and _at_own_indices(op, load) for load in _loads(op)
    )


def reads_along_last(op: te.ComputeOp) -> bool:
    """True if neighbours on the last axis are neighbours in everything that is read."""
    return all(
        part.axis and _depends(load.indices[-1], part.axis[-1].var)
        for part in inlined(op)
        for load in _loads(part)
        if len(load.indices)
    )


def reduces_last(op: te.ComputeOp) -> bool:
    """True if the reduction runs along the last axis of what it reads, and so along memory."""
    if not op.reduce_axis:
        return False
    var = op.reduce_axis[-1].var
    return any(_depends(load.indices[-1], var) for load in _loads(op) if len(load.indices))
