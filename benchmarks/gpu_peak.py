"""The most multiply-adds that a phone's GPU does: chains of them in registers, with nothing to load."""

from __future__ import annotations

import tvm
from gpu_kernels import OnPhone, builder_for
from tvm import autotvm, te
from tvm.autotvm.measure import MeasureInput

from tvm_codl.api import Session
from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.target import gpu_of

#: Steps of the chains; the register tile; groups for each compute unit.
STEPS, TILE, GROUPS = 4096, 8, 8
TASK = "gpu_peak"


@autotvm.template(TASK)
def _chains(groups: int, group: int, lanes: int) -> tuple[te.Schedule, list[te.Tensor]]:
    a = te.placeholder((groups, group, TILE), name="a")
    b = te.placeholder((groups, group, lanes), name="b")
    k = te.reduce_axis((0, STEPS), "k")
    acc = te.compute(
        (groups, group, TILE, lanes), lambda g, i, x, lane: te.sum(a[g, i, x] * b[g, i, lane], axis=[k]), name="acc"
    )
    out = te.compute((groups, group, TILE, lanes), lambda *at: acc(*at), name="out")
    s = te.create_schedule(out.op)
    g, i, x, lane = s[out].op.axis
    s[out].bind(g, te.thread_axis("blockIdx.x"))
    s[out].bind(i, te.thread_axis("threadIdx.x"))
    s[out].unroll(x)
    s[out].vectorize(lane)
    s[acc].set_scope("local")
    s[acc].compute_at(s[out], i)
    for tensor in (a, b):
        s[s.cache_read(tensor, "local", [acc])].compute_at(s[out], i)
    ag, ai, ax, alane = s[acc].op.axis
    s[acc].reorder(ag, ai, k, ax, alane)
    s[acc].unroll(ax)
    s[acc].vectorize(alane)
    autotvm.get_config().add_flop(2 * groups * group * TILE * lanes * STEPS)
    return s, [a, b, out]


def measured_peak(session: Session, rounds: int = 5) -> float:
    """GFLOP/s of float32, a multiply-add counted as two: the best of a few samples."""
    gpu: Gpu = gpu_of(session.tools.gpu)
    task = autotvm.task.create(TASK, (gpu.units * GROUPS, max(gpu.group, 1), gpu.lanes), session.tools.gpu)
    builder = builder_for(session)
    try:
        (built,) = builder.build([MeasureInput(task.target, task, task.config_space.get(0))])
        if not hasattr(built, "function"):
            raise tvm.error.TVMError(f"the probe of the peak does not build: {built}")
        kernel = OnPhone(session, built)
        return float(task.flop / min(kernel.sample() for _ in range(rounds)) / 1e6)
    finally:
        builder.close()
