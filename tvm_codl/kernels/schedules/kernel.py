"""The inner kernel that convolutions and matrix products share: its loops on a CPU and on a GPU.

Results lie as (..., x, c).  They are computed in a buffer ``acc`` laid out (..., x, c // lanes, c % lanes), which the
schedule keeps in registers: a tile of it is computed where the last operator of the fused group needs it, so that
bias, residual and activation cost no pass over memory.  Weights lie as (c // lanes, ..., k, c % lanes).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import tvm
from tvm import autotvm, te
from tvm.topi.utils import traverse_inline

from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.schedules.dots import dot_product
from tvm_codl.kernels.schedules.elementwise import schedule_stage
from tvm_codl.kernels.schedules.image import read_from_image
from tvm_codl.kernels.target import gpu_of, is_gpu, vector_lanes
from tvm_codl.kernels.tiles.dots import Dot
from tvm_codl.kernels.tiles.register_tiles import KNOBS, Problem, Tiles, candidates, choose, fit, vector_registers
from tvm_codl.kernels.tiles.strips import Strips

TUNED_PAIRS = 4
Cut = TypeVar("Cut", Tiles, Strips)
Schedule = Callable[[te.Schedule, te.Tensor, te.Tensor], None]


def problem_on(rows: int, columns: int, channels: int, depth: int, channels_in: int, lanes: int) -> Problem:
    """The problem on the current target."""
    target = tvm.target.Target.current()
    gpu = gpu_of(target) if is_gpu(target) else Gpu()
    vectors = vector_registers(vector_lanes(target))
    return Problem(rows, columns, channels, depth, channels_in, lanes, gpu, vectors=vectors)


def integer_problem(rows: int, columns: int, channels: int, depth: int, deep: int, lanes: int, dot: Dot) -> Problem:
    """The problem of 8-bit integers: ``depth`` instructions for each result, ``deep`` of them in a row."""
    return msgspec.structs.replace(problem_on(rows, columns, channels, depth, deep, lanes), vectors=dot.vectors)


def define_tiles(cfg: autotvm.ConfigEntity, problem: Problem) -> Tiles:
    """Declares the knobs to AutoTVM and returns the tiles that ``cfg`` stands for."""
    pairs = candidates(problem, TUNED_PAIRS)
    default = integers(choose(problem))
    cfg.define_knob("columns", distinct(default.columns, *(c for c, _ in pairs)))
    cfg.define_knob("blocks", distinct(default.blocks, *(b for _, b in pairs)))
    if problem.on_phone:
        for name in ("unroll", "rows", "weights_first", "threads"):
            cfg.define_knob(name, [getattr(default, name)])
    else:
        cfg.define_knob("unroll", [u for u in (1, 2) if problem.channels_in % u == 0])
        cfg.define_knob("rows", distinct(default.rows, *(r for r in (1, 2, 4) if problem.rows % r == 0)))
        cfg.define_knob("weights_first", distinct(default.weights_first, 0, 1))
        cfg.define_knob("threads", [1] if default.threads == 1 else distinct(default.threads, 32, 16, 1))
    # A tile larger than the registers is slow to run, and ten times slower to compile.
    cfg.multi_filter(filter=lambda knobs: bool(problem.holds(knobs["columns"].val, knobs["blocks"].val)))
    return tiles_of(cfg, problem)


def tiles_of(cfg: autotvm.ConfigEntity, problem: Problem) -> Tiles:
    """The estimate, or those of ``cfg`` made legal."""
    if cfg.is_fallback:
        return integers(choose(problem))
    return integers(fit(Tiles(**{name: int(cfg[name].val) for name in KNOBS}), problem))


def integers(cut: Cut) -> Cut:
    """NumPy's numbers as Python's."""
    return type(cut)(*(int(getattr(cut, name)) for name in cut.__struct_fields__))


def schedule_fused(outs: list[te.Tensor] | te.Tensor, tag: str, schedule: Schedule) -> te.Schedule:
    """Calls ``schedule`` with the fused group's output and the result of its compute tagged ``tag``."""
    outs = [outs] if isinstance(outs, te.Tensor) else outs
    s, out = te.create_schedule([t.op for t in outs]), outs[0]

    def visit(op: te.Operation) -> None:
        if op.tag == tag:
            if not op.same_as(out.op):
                s[op].compute_inline()
            schedule(s, out, op.output(0))

    traverse_inline(s, out.op, visit)
    return s


def schedule_inputs(s: te.Schedule, acc: te.Tensor) -> None:
    """Padding, and packing at run time, are kernels of their own."""
    for stage in acc.op.input_tensors:
        if isinstance(stage.op, te.ComputeOp):
            schedule_stage(s, stage)
    read_from_image(s, acc.op.input_tensors[1], acc)


def schedule_tile(
    s: te.Schedule, out: te.Tensor, acc: te.Tensor, tiles: Tiles, rows: bool, dot: Dot | None = None
) -> None:
    """Schedules ``out`` and ``acc``.  ``rows``: the axis before the columns may be cut into rows per work-item.  ``dot``: the
    instruction that computes ``acc`` of integers; its last reduction is one step."""
    gpu = is_gpu(tvm.target.Target.current())
    *outer, x, c = s[out].op.axis
    lanes = int(acc.shape[-1])
    # Channels that the last vector does not fill are stored in narrower ones.
    width = math.gcd(int(c.dom.extent), lanes)
    block, lane = s[out].split(c, width)
    group, block = s[out].split(block, tiles.blocks * (lanes // width))
    strip, x = s[out].split(x, tiles.columns)
    if rows:
        *outer, y = outer
        y, y_inner = s[out].split(y, tiles.rows)
        s[out].reorder(*outer, group, y, y_inner, strip, x, block, lane)
        spatial = [y, y_inner, strip]
    else:
        y, strip = s[out].split(strip, 1)
        s[out].reorder(*outer, group, y, strip, x, block, lane)
        spatial = [y, strip]
    s[out].vectorize(lane)
    s[out].unroll(x)
    s[out].unroll(block)
    _schedule_accumulators(s, out, acc, strip, tiles, dot)
    if gpu and tiles.threads > 1:
        _bind_threads(s, out, outer, group, spatial, acc, tiles)
        return
    first, second = (group, y) if tiles.weights_first else (y, group)
    s[out].reorder(*outer, first, second)
    if gpu:
        # One work-item a group.  The device walks ``x`` fastest, so ``second`` is the one that changes first.
        s[out].bind(second, te.thread_axis("blockIdx.x"))
        s[out].bind(s[out].fuse(*outer, first), te.thread_axis("blockIdx.y"))
    else:
        s[out].parallel(s[out].fuse(*outer, first, second))


def _schedule_accumulators(
    s: te.Schedule, out: te.Tensor, acc: te.Tensor, at: te.schedule.IterVar, tiles: Tiles, dot: Dot | None
) -> None:
    s[acc].compute_at(s[out], at)
    s[acc].set_scope("local")
    *outer, x, block, lane = s[acc].op.axis
    intrinsic = dot_product(dot, int(acc.shape[-1]), is_gpu(tvm.target.Target.current())) if dot is not None else None
    *window, k = s[acc].op.reduce_axis
    values = []
    if dot is not None:
        *window, k, one = s[acc].op.reduce_axis
        values = [one]
    depth = int(k.dom.extent)
    k, step = s[acc].split(k, depth if depth <= 4 else tiles.unroll)
    before, inside = ([], values) if intrinsic is not None else (values, [])
    s[acc].reorder(*outer, *window, k, step, *before, x, block, lane, *inside)
    for axis in (step, *before, x, block):
        s[acc].unroll(axis)
    if intrinsic is not None:
        s[acc].tensorize(lane, intrinsic)
    else:
        s[acc].vectorize(lane)


def _bind_threads(s, out, outer, group, spatial, acc, tiles) -> None:
    """Neighbouring work-items take neighbouring channels: their weights are adjacent and their inputs the same."""
    s[out].reorder(*outer, *spatial, group)
    item = s[out].fuse(*outer, *spatial, group)
    grid, thread = s[out].split(item, tiles.threads)
    s[out].bind(grid, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    s[acc].compute_at(s[out], thread)


def distinct(*values: Any) -> list[Any]:
    return list(dict.fromkeys(values))
