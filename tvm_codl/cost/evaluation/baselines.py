"""Baselines: simpler models of latency, reported beside the learned one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

Floats = NDArray[np.float64]

_TINY = 1e-9


class Amounts(msgspec.Struct, frozen=True):
    """What the baselines know of operators; every field has shape (operators,).

    ``units`` are the pieces of work that one compute unit or thread does in series (warps of a GPU, blocks of a CPU),
    ``steps`` the iterations of the innermost loop in each.
    """

    flops: Floats
    bytes: Floats
    out_h: Floats
    out_w: Floats
    out_c: Floats
    in_c: Floats
    kernel: Floats
    stride: Floats
    units: Floats
    steps: Floats

    def __getitem__(self, chosen: NDArray[np.intp]) -> Amounts:
        return Amounts(*(getattr(self, name)[chosen] for name in self.__struct_fields__))

    @classmethod
    def of(cls, workloads: Sequence[Workload], processor: Processor, compute_units: int = 1, wave: int = 64) -> Amounts:
        """With units by CoDL's block sizes (``Conv2dOpenCLUtils`` and ``GetCpuGemmKeyParamInternal`` in its
        ``codl-eval-tools/codl-lat-collect-and-eval/utils``).

        GPU: 4 channels by 4 columns (5 for a 3x3 kernel) a work-item, ``wave`` items a warp, work-groups of whole warps.
        CPU: blocks of 8 channels by 8 positions, 4 input values at a time.  ``compute_units`` work side by side.
        """

        def column(name: str) -> Floats:
            return np.array([float(getattr(w, name)) for w in workloads])

        moved = column("bytes_in") + column("bytes_weights") + column("bytes_out")
        kernel, groups = np.sqrt(column("kernel_h") * column("kernel_w")), np.maximum(column("groups"), 1.0)
        rows = column("batch") * column("out_h")
        if processor == "gpu":
            across = np.ceil(column("out_w") / np.where(kernel == 3, 5, 4))
            units = np.ceil(np.ceil(np.ceil(column("out_c") / 4) * across * rows / wave) / compute_units)
        else:
            units = np.ceil(np.ceil(column("out_c") / 8) / compute_units) * np.ceil(rows * column("out_w") / 8)
        steps = np.ceil(column("in_c") / groups / 4) * kernel**2
        sizes = (rows, column("out_w"), column("out_c"), column("in_c"), kernel, column("stride"))
        return cls(column("flops"), moved, *sizes, units, np.maximum(steps, 1.0))


class Baseline(Protocol):
    @classmethod
    def fit(cls, amounts: Amounts, log_ms: Floats) -> Self:
        """Learn from log-milliseconds of shape (operators,)."""
        ...

    def predict(self, amounts: Amounts) -> Floats:
        """Log-milliseconds, shape (operators,)."""
        ...


class Flops(msgspec.Struct, frozen=True):
    """A time for each operation and one for each operator: ``ms = slope * flops + start``."""

    slope: float
    start: float
    least: float

    @classmethod
    def fit(cls, amounts: Amounts, log_ms: Floats) -> Flops:
        """The coefficients of the least squared relative error."""
        design = np.column_stack([amounts.flops, np.ones(len(log_ms))])
        slope, start = _least_squares(design / np.exp(log_ms)[:, None], np.ones(len(log_ms)))
        return cls(slope, start, float(np.exp(log_ms.min())))

    def predict(self, amounts: Amounts) -> Floats:
        return np.log(np.maximum(self.slope * amounts.flops + self.start, self.least))


class Roofline(msgspec.Struct, frozen=True):
    """The slower of computing and moving, behind a start-up time (Williams, Waterman, Patterson, CACM 52(4), 2009).

    All three in logarithms: of milliseconds a FLOP, milliseconds a byte, and milliseconds.
    """

    flop: float
    byte: float
    start: float

    @classmethod
    def fit(cls, amounts: Amounts, log_ms: Floats) -> Roofline:
        """The coefficients of least mean error of log-time."""

        def loss(logs: Floats) -> float:
            return float(np.mean(np.abs(cls(*(float(log) for log in logs)).predict(amounts) - log_ms)))

        work = np.log(np.maximum(amounts.flops, 1.0))
        moved = np.log(np.maximum(amounts.bytes, 1.0))
        first = [np.quantile(log_ms - work, 0.2), np.quantile(log_ms - moved, 0.2), np.quantile(log_ms, 0.02) - 0.7]
        best = minimize(loss, first, method="Nelder-Mead", options={"maxiter": 400}).x
        return cls(*best.tolist())

    def predict(self, amounts: Amounts) -> Floats:
        busy = np.maximum(np.exp(self.flop) * amounts.flops, np.exp(self.byte) * amounts.bytes)
        result: Floats = np.log(np.maximum(busy + np.exp(self.start), _TINY))
        return result


class Codl(msgspec.Struct, frozen=True):
    """CoDL's linear predictor: units in series times a unit's time, which is linear in the blocks of the shape.

    "CoDL: efficient CPU-GPU co-execution for deep learning inference on mobile devices", MobiSys 2022, the section on
    its latency predictor; ``_extract_gpu_direct_warp`` and ``GetGpuDirectKeyParamInternalWarpMode`` in
    ``utils/dataset/ml_dataset_utils.py`` of its tools: the time of a warp and an input block is regressed on the output
    height, the blocks of width, of input and of output channels, the kernel's size and the stride.  One regression for
    each size of kernel that has enough samples, as each is an implementation of its own there.
    """

    weights: Mapping[str, list[float]]
    least: float

    @classmethod
    def fit(cls, amounts: Amounts, log_ms: Floats) -> Codl:
        unit_ms = np.exp(log_ms) / (amounts.units * amounts.steps)
        design = _blocks(amounts)
        weights = {"": _least_squares(design, unit_ms)}
        for kernel in np.unique(amounts.kernel).tolist():
            chosen = amounts.kernel == kernel
            if int(chosen.sum()) >= 4 * design.shape[1]:
                weights[str(kernel)] = _least_squares(design[chosen], unit_ms[chosen])
        return cls(weights, float(unit_ms.min()))

    def predict(self, amounts: Amounts) -> Floats:
        weights = np.array([self.weights.get(str(kernel), self.weights[""]) for kernel in amounts.kernel.tolist()])
        unit_ms = np.maximum(np.sum(_blocks(amounts) * weights.reshape(-1, 7), axis=1), self.least)
        result: Floats = np.log(np.maximum(unit_ms * amounts.units * amounts.steps, _TINY))
        return result


BASELINES: dict[str, type[Baseline]] = {"CoDL linear": Codl, "roofline": Roofline, "FLOPs": Flops}


def _blocks(amounts: Amounts) -> Floats:
    across = np.ceil(amounts.out_w / np.where(amounts.kernel == 3, 5, 4))
    channels = (np.ceil(amounts.in_c / 4), np.ceil(amounts.out_c / 4))
    return np.column_stack([np.ones(len(across)), amounts.out_h, across, *channels, amounts.kernel, amounts.stride])


def _least_squares(design: Floats, target: Floats) -> list[float]:
    weights: list[float] = np.linalg.lstsq(design, target, rcond=None)[0].tolist()
    return weights
