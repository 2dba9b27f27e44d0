"""Board: convolutions with TVM's best tuned kernels on the RK3399's CPU and Mali GPU (TopHub's logs), held out by shape.

Every shape appears once and each kernel was tuned by itself: few, noisy samples.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.phones.operators import read_rows
from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.evaluation.held_out import hold_out
from tvm_codl.cost.evaluation.metrics import Result
from tvm_codl.cost.samples import UNSURE_SIGMA, Sample
from tvm_codl.kernels.gpu import usual
from tvm_codl.records.workload import Workload

RK3399 = "rk3399_conv_cpu_vs_mali.csv"
#: NEON vectors; the Mali-T860 MP4 of the board.
_FACTS = DeviceFacts(cpu_lanes=4, gpu=usual("mobile"), cpu_cores=2, compute_units=4)


def evaluate_board(folder: Path) -> list[Result]:
    """The cost model next to the baselines on each processor."""
    return hold_out(read_board(folder), _FACTS, name="rk3399").results


def read_board(folder: Path) -> list[Sample]:
    """Two samples a row, the CPU's and the GPU's.

    Raises :class:`UserError` where the folder has no such file, and for a row that is no convolution.
    """
    pairs = read_rows(folder / RK3399, _samples)
    return [sample for pair in pairs for sample in pair]


def _samples(row: dict[str, str]) -> tuple[Sample, Sample]:
    batch, in_c, in_h, in_w = json.loads(row["data_shape"])
    out_c, _, kernel_h, kernel_w = json.loads(row["kernel_shape"])
    stride, stride_w = json.loads(row["strides"])
    top, left, bottom, right = (int(part) for part in row["padding"].strip("()[]").split(","))
    if batch != 1 or stride != stride_w:
        raise ValueError("not a convolution of one picture with one stride")
    out_h, out_w = (in_h + top + bottom - kernel_h) // stride + 1, (in_w + left + right - kernel_w) // stride + 1
    times = float(row["cpu_ms"]), float(row["gpu_ms"])
    if not all(0 < ms < float("inf") for ms in times):
        raise ValueError(f"times {times}")
    depthwise = row["kind"] == "dw"
    weights = out_c * (1 if depthwise else in_c) * kernel_h * kernel_w
    workload = Workload(
        key=json.dumps([row[name] for name in ("kind", "data_shape", "kernel_shape", "strides", "padding")]),
        kind="depthwise" if depthwise else "conv2d",
        anchor="nn.conv2d",
        dtype="float32",
        batch=1,
        out_h=out_h,
        out_w=out_w,
        out_c=out_c,
        in_h=in_h,
        in_w=in_w,
        in_c=in_c,
        kernel_h=kernel_h,
        kernel_w=kernel_w,
        stride=stride,
        stride_w=stride,
        dilation=1,
        groups=in_c if depthwise else 1,
        flops=2 * out_h * out_w * weights,
        bytes_in=4 * in_h * in_w * in_c,
        bytes_data=4 * in_h * in_w * in_c,
        bytes_weights=4 * weights,
        bytes_out=4 * out_h * out_w * out_c,
        body=1,
        pad_top=top,
        pad_left=left,
        pad_bottom=bottom,
        pad_right=right,
    )
    cpu, gpu = times
    return (
        Sample(workload, "cpu", cpu, UNSURE_SIGMA, _FACTS),
        Sample(workload, "gpu", gpu, UNSURE_SIGMA, _FACTS),
    )
