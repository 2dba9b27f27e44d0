"""Board evaluation: convolutions with TVM's best tuned kernels on the RK3399's CPU and Mali GPU (from TopHub's logs).

Every shape appears once and each kernel was searched for by itself, so a time says as much of how lucky the search was
as of the shape: the figures are for few, noisy samples.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.cost.ensemble import FULL, Ensemble, Settings
from tvm_codl.cost.evaluation.baselines import BASELINES, Amounts
from tvm_codl.cost.evaluation.metrics import Result, folds, metrics
from tvm_codl.cost.phone_data import LEARNED, TREES, plain_trees
from tvm_codl.errors import UserError

Floats = NDArray[np.float64]

RK3399 = "rk3399_conv_cpu_vs_mali.csv"
_LANES = (4, 8, 16)


class BoardConvolution(msgspec.Struct, frozen=True):
    """One convolution, batch 1, float32; ``depthwise`` or over all channels."""

    in_h: int
    in_c: int
    out_h: int
    out_w: int
    out_c: int
    kernel_h: int
    kernel_w: int
    stride: int
    depthwise: bool
    cpu_ms: float
    gpu_ms: float

    @property
    def flops(self) -> float:
        depth = 1 if self.depthwise else self.in_c
        return 2.0 * self.out_h * self.out_w * self.out_c * depth * self.taps

    @property
    def taps(self) -> int:
        return self.kernel_h * self.kernel_w


def read_board(folder: Path) -> list[BoardConvolution]:
    """Raises :class:`UserError` where the folder has no such file, and for a row that is no convolution."""
    path = folder / RK3399
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [_convolution(row) for row in csv.DictReader(file)]
    except OSError as error:
        raise UserError(f"{path} cannot be read", str(error), "name the folder that holds the phones' data") from error
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise UserError(f"{path} holds no convolutions", str(error) or repr(error)) from error


def evaluate_board(
    folder: Path, *, settings: Settings = FULL, log: Callable[[str], None] = lambda line: None
) -> list[Result]:
    """Five folds by shape on each processor, all learners side by side."""
    found = read_board(folder)
    rows, known = _features(found), _amounts(found)
    results = []
    for processor in ("cpu", "gpu"):
        log_ms = np.log([op.cpu_ms if processor == "cpu" else op.gpu_ms for op in found])
        predicted = {name: np.empty(len(found)) for name in (LEARNED, TREES, *BASELINES)}
        sigma = np.empty(len(found))
        for training, test in folds(range(len(found)), 5):
            model = Ensemble.fit(rows[training], log_ms[training], slopes={0: 0.7 * math.log(2.0)}, settings=settings)
            predicted[LEARNED][test], sigma[test] = model.predict(rows[test])
            predicted[TREES][test] = plain_trees(rows[training], log_ms[training], rows[test])
            for name, baseline in BASELINES.items():
                predicted[name][test] = baseline.fit(known[training], log_ms[training]).predict(known[test])
        for name, values in predicted.items():
            stated = sigma if name == LEARNED else None
            results.append(Result(f"rk3399 {processor}", "conv", name, metrics(np.exp(log_ms), np.exp(values), stated)))
        best = results[-len(predicted)].metrics
        log(f"rk3399 {processor}: {best.within_10:.1%} within 10 %, median error {best.median_error:.1%}")
    return results


def _convolution(row: dict[str, str]) -> BoardConvolution:
    batch, in_c, in_h, in_w = json.loads(row["data_shape"])
    out_c, _, kernel_h, kernel_w = json.loads(row["kernel_shape"])
    stride, stride_w = json.loads(row["strides"])
    top, left, bottom, right = (int(part) for part in row["padding"].strip("()[]").split(","))
    if batch != 1 or stride != stride_w:
        raise ValueError(f"not a convolution of one picture with one stride: {row}")
    out_h, out_w = (in_h + top + bottom - kernel_h) // stride + 1, (in_w + left + right - kernel_w) // stride + 1
    times = float(row["cpu_ms"]), float(row["gpu_ms"])
    if not all(0 < ms < math.inf for ms in times):
        raise ValueError(f"times {times}")
    return BoardConvolution(in_h, in_c, out_h, out_w, out_c, kernel_h, kernel_w, stride, row["kind"] == "dw", *times)


def _features(found: list[BoardConvolution]) -> Floats:
    rows = []
    for op in found:
        sizes = (op.flops, op.in_h, op.in_c, op.out_h, op.out_w, op.out_c, op.out_h * op.out_w, sum(_bytes(op)))
        fills = [size / (-(-size // lane) * lane) for size in (op.out_c, op.out_w, op.in_c) for lane in _LANES]
        winograd = op.kernel_h == op.kernel_w == 3 and op.stride == 1
        kinds = (op.kernel_h, op.kernel_w, op.stride, op.depthwise, winograd, op.taps == 1)
        logs = [math.log2(size) for size in (*sizes, *_bytes(op), op.flops / sum(_bytes(op)))]
        rows.append([*logs, *fills, *(float(kind) for kind in kinds)])
    return np.array(rows)


def _bytes(op: BoardConvolution) -> tuple[float, float, float]:
    depth = 1 if op.depthwise else op.in_c
    return 4.0 * op.in_h**2 * op.in_c, 4.0 * op.out_h * op.out_w * op.out_c, 4.0 * op.out_c * depth * op.taps


def _amounts(found: list[BoardConvolution]) -> Amounts:
    columns = []
    for op in found:
        depth = 1 if op.depthwise else op.in_c
        units = math.ceil(op.out_c / 4) * math.ceil(op.out_w / (5 if op.kernel_w == 3 else 4)) * op.out_h
        sizes = (op.out_h, op.out_w, op.out_c, op.in_c, math.sqrt(op.taps), op.stride)
        columns.append((op.flops, sum(_bytes(op)), *sizes, units, math.ceil(depth / 4) * op.taps))
    return Amounts(*np.array(columns, dtype=np.float64).T)
