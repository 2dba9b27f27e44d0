"""Convolution of 8-bit integers in NHWC with int8 weights, on a CPU: compute and schedule.

An instruction takes ``step`` neighbouring values for each sum (:mod:`tvm_codl.kernels.tiles.dots`).  Where channels do not
fill steps, as a picture's three, the values that a row of the window reads do: undilated, they lie together.
"""

from __future__ import annotations

from typing import Any

import msgspec
import tvm
from tvm import autotvm, te
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.reuse import INTEGER_CONV2D as TASK
from tvm_codl.kernels.schedules.groups import spread
from tvm_codl.kernels.schedules.kernel import define_tiles, integer_problem, schedule_fused, schedule_tile, tiles_of
from tvm_codl.kernels.schedules.operands import WindowSizes, below, lane_of, or_zero, within
from tvm_codl.kernels.schedules.window import TAG
from tvm_codl.kernels.target import dot_on, group_size, is_gpu, vector_lanes
from tvm_codl.kernels.tiles import vectors
from tvm_codl.kernels.tiles.dots import Dot
from tvm_codl.kernels.tiles.register_tiles import Problem
from tvm_codl.kernels.tiles.window import reach, whole_tiles


class Run(msgspec.Struct, frozen=True):
    """What one instruction after the other reads: ``taps`` runs a row of the window, each of ``length`` neighbouring values
    in ``steps`` of ``step``, the last filled up with zero weights."""

    taps: int
    length: int
    step: int

    @property
    def steps(self) -> int:
        return -(-self.length // self.step)

    @property
    def extra(self) -> int:
        """Values that the last step reads behind the run."""
        return self.steps * self.step - self.length

    @classmethod
    def of(cls, window: int, channels: int, dilation: int, step: int) -> Run:
        together = dilation == 1
        return cls(1 if together else window, window * channels if together else channels, step)


@autotvm.register_topi_compute(TASK)
def conv2d(
    cfg: autotvm.ConfigEntity,
    data: te.Tensor,
    kernel: te.Tensor,
    strides: tuple[int, int],
    padding: tuple[int, ...],
    dilation: tuple[int, int],
    out_dtype: str,
) -> te.Tensor:
    """``data`` (N, H, W, IC) of uint8 or int8; ``kernel`` int8 as (OC/v, KH, KW, IC/s, v, s), where an instruction takes
    ``s`` values for each of ``v`` sums, or (KH, KW, IC, OC), which is packed as it runs; result int32 (N, H', W', OC)."""
    n, h, w, channels_in = get_const_tuple(data.shape)
    packed = len(kernel.shape) == 6
    kh, kw = get_const_tuple(kernel.shape)[1:3] if packed else get_const_tuple(kernel.shape)[:2]
    (sh, sw), (dh, dw) = strides, dilation
    sizes = WindowSizes.of((h, w), (kh, kw), strides, padding, dilation)
    rows, columns = sizes.rows, sizes.columns
    dot = _dot(data.dtype, int(kernel.shape[5]) if packed else 0)
    run = Run.of(kw, channels_in, dw, dot.step)
    weights = kernel if packed else _pack(kernel, run, rows * columns)
    blocks, lanes = int(weights.shape[0]), int(weights.shape[-2])
    channels = blocks * lanes if packed else int(kernel.shape[3])
    problem = _problem(rows, columns, blocks * lanes, kh, run, lanes, dot)
    whole = whole_tiles(columns, define_tiles(cfg, problem).columns)
    # Of a window of one position, what lies between strides is not copied.
    (step_y, gap_y), (step_x, gap_x) = ((1, sh) if kh == 1 else (sh, 1)), ((1, sw) if kw == 1 else (sw, 1))
    copy = Copy(
        reach(rows, step_y, kh, dh), reach(whole, step_x, kw, dw), sizes.top, sizes.left, gap_y, gap_x, run.extra
    )
    ragged = channels_in % dot.step != 0
    if not ragged and dot.reads == data.dtype and not copy.leaves(h, w):
        source, (step_y, step_x) = data, strides
    else:
        source = copy.of(data, dot.reads, ragged)
    deep = channels_in // dot.step

    def product(b: Any, y: Any, x: Any, block: Any, lane: Any) -> Any:
        row, column = y * step_y + ry * dh, x * step_x + tap * dw
        if ragged:
            value = source[b, row, column * channels_in + j * dot.step + k]
        else:
            value = source[b, row, column + j // deep, j % deep * dot.step + k]
        at = (tap, j) if not packed or dw > 1 else (j // deep, j % deep)
        return te.sum(value.astype(out_dtype) * weights[block, ry, *at, lane, k].astype(out_dtype), [ry, tap, j, k])

    ry, tap = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, run.taps), "tap")
    j, k = te.reduce_axis((0, run.steps), "j"), te.reduce_axis((0, dot.step), "k")
    acc = te.compute((n, rows, whole, blocks, lanes), product, name="acc", attrs={"window": kh})
    cfg.add_flop(2 * n * rows * columns * channels * kh * kw * channels_in)
    return te.compute(
        (n, rows, columns, channels),
        lambda b, y, x, c: acc[b, y, x, c // lanes, lane_of(c, lanes, channels)],
        name="conv2d",
        tag=TAG,
        attrs={"reads": data.dtype},
    )


@autotvm.register_topi_schedule(TASK)
def schedule_conv2d(cfg: autotvm.ConfigEntity, outs: list[te.Tensor]) -> te.Schedule:
    def schedule(s: te.Schedule, out: te.Tensor, conv: te.Tensor) -> None:
        (acc,) = conv.op.input_tensors
        _, rows, columns, _ = get_const_tuple(conv.shape)
        blocks, lanes = get_const_tuple(acc.shape)[3:]
        kh, taps, steps, step = (int(axis.dom.extent) for axis in acc.op.reduce_axis)
        dot = _dot(str(conv.op.attrs["reads"]), step)
        problem = _problem(rows, columns, blocks * lanes, kh, Run(taps, steps * step, step), lanes, dot)
        for stage in acc.op.input_tensors:
            if isinstance(stage.op, te.ComputeOp):
                _schedule_input(s, stage)
        schedule_tile(s, out, acc, tiles_of(cfg, problem), rows=True, dot=dot)

    return schedule_fused(outs, TAG, schedule)


def _dot(dtype: str, step: int) -> Dot:
    """The current target's instruction for data of ``dtype`` and weights packed in ``step`` values, 0 where they are not;
    plain arithmetic where they were packed for another target, whose answer is asked for."""
    dot = dot_on(dtype)
    same = step in (0, dot.step) and dot.reads in (dtype, "int16")
    return dot if same else Dot("multiply", step or 1, "int16", dot.registers)


def _problem(rows: int, columns: int, channels: int, kh: int, run: Run, lanes: int, dot: Dot) -> Problem:
    return integer_problem(rows, columns, channels, kh * run.taps * run.steps, run.steps, lanes, dot)


def _schedule_input(s: te.Schedule, stage: te.Tensor) -> None:
    """LLVM finds the vectors of a copy, whose innermost loop reads and writes along memory."""
    *outer, last = s[stage].op.axis
    if is_gpu(tvm.target.Target.current()):
        if group_size(tvm.target.Target.current()) > 1:
            spread(s[stage], list(s[stage].op.axis), [int(d) for d in stage.shape], 1)
        else:
            s[stage].bind(s[stage].fuse(*outer[:2]), te.thread_axis("blockIdx.x"))
        return
    if stage.op.name == RAGGED:
        s[stage].pragma(last, "loop_partition_hint")
    s[stage].parallel(s[stage].fuse(*outer[:2]))


class Copy(msgspec.Struct, frozen=True):
    """A copy of a convolution's input, ``height`` by ``width`` with zeros around it, of every ``gap_y``th row and
    ``gap_x``th column.  ``extra``: values behind each row."""

    height: int
    width: int
    top: int
    left: int
    gap_y: int
    gap_x: int
    extra: int

    def leaves(self, h: int, w: int) -> bool:
        """Whether it has rows or columns that an input of ``h`` by ``w`` has not."""
        below = (self.height - 1) * self.gap_y - self.top >= h
        return bool(self.top or self.left or below or (self.width - 1) * self.gap_x - self.left >= w)

    def of(self, data: te.Tensor, dtype: str, flat: bool) -> te.Tensor:
        """The copy of ``data`` (N, H, W, C): (N, height, width, C), or ``flat`` (N, height, width * C + extra)."""
        n, h, w, channels = get_const_tuple(data.shape)

        def value(b: Any, y: Any, x: Any, c: Any) -> Any:
            y, x = y * self.gap_y - self.top, x * self.gap_x - self.left
            last_y, last_x = (self.height - 1) * self.gap_y - self.top, (self.width - 1) * self.gap_x - self.left
            inside = within((y, self.top > 0, last_y, h), (x, self.left > 0, last_x + bool(flat and self.extra), w))
            return or_zero(data[b, y, x, c].astype(dtype), inside)

        if not flat:
            return te.compute((n, self.height, self.width, channels), value, name="data_pad")
        return te.compute(
            (n, self.height, self.width * channels + self.extra),
            lambda b, y, j: value(b, y, j // channels, j % channels),
            name=RAGGED,
        )


RAGGED = "data_rows"


def _pack(kernel: te.Tensor, run: Run, positions: int) -> te.Tensor:
    """(KH, KW, IC, OC) as (ceil(OC/v), KH, taps, steps, v, s)."""
    kh, _, channels_in, channels = get_const_tuple(kernel.shape)
    lanes, _ = integer_packing(channels, positions)
    blocks = -(-channels // lanes)

    def value(block: Any, y: Any, tap: Any, step: Any, lane: Any, k: Any) -> Any:
        channel, at = block * lanes + lane, step * run.step + k
        x, c = (at // channels_in, at % channels_in) if run.taps == 1 else (tap, at)
        filled = below(channel, blocks * lanes, channels) + below(at, run.length + run.extra, run.length)
        return or_zero(kernel[y, x, c, channel], filled)

    return te.compute((blocks, kh, run.taps, run.steps, lanes, run.step), value, name="packed_weights")


def integer_packing(channels: int, positions: int) -> tuple[int, bool]:
    """:func:`tvm_codl.kernels.tiles.vectors.integer_packing` for the current target's vectors."""
    lanes, fill = vectors.integer_packing(channels, positions, vector_lanes(tvm.target.Target.current()))
    return int(lanes), bool(fill)
