"""Softmax over rows on a real GPU: one kernel, whose groups take a row each."""

from __future__ import annotations

import tvm
from tvm import te

from tvm_codl.kernels.schedules.reductions import bind_rows, reduce_rows, row_lanes, row_share
from tvm_codl.kernels.target import gpu_of

TAGS = ("softmax_output", "log_softmax_output")


def schedule_softmax(s: te.Schedule, out: te.Tensor, stages: list[te.ComputeOp]) -> bool:
    """``stages`` lead to ``out``, TVM's softmax or its logarithm; False where it is not along rows, or they are short."""
    if out.op.tag not in TAGS or int(out.op.attrs["axis"]) != len(out.shape) - 1 or len(out.shape) < 2:
        return False
    gpu = gpu_of(tvm.target.Target.current())
    reductions = [op for op in stages if op.reduce_axis]
    length, lanes = int(out.shape[-1]), min(row_lanes(op, gpu.lanes) for op in reductions)
    # A maximum is read by the rows' parts too, so that TVM cannot keep several rows' apart: one row a group.
    share = next((one for n in (lanes, 1) if (one := row_share(gpu, length, [1], n)) and one.parts >= gpu.warp), None)
    if share is None:
        return False
    lanes = lanes if length // lanes >= share.parts else 1
    for op in stages:
        if not op.reduce_axis and not op.same_as(out.op):
            s[op].compute_inline()  # exponentials cost less than a pass over memory
    *axes, k = s[out].op.axis
    k, lane = s[out].split(k, lanes)
    step, at = s[out].split(k, share.parts)
    part = te.thread_axis("threadIdx.x")
    row = bind_rows(s[out], axes, share, step, at, lane)
    s[out].bind(at, part)
    s[out].vectorize(lane)
    for op in reductions:
        reduce_rows(s, op.output(0), s[out], row, part, share, lanes)
    return True
