"""What is asked of a GPU and what came of it: convolutions, their times by several libraries, and the ratios of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from tvm_codl.report.statistics import Statistics


class Convolution(msgspec.Struct, frozen=True, order=True):
    """Of one image; a dense layer is a 1 × 1 convolution of a 1 × 1 image with ``dense`` set.  ``pad``: top, left, bottom,
    right."""

    batch: int
    height: int
    width: int
    channels_in: int
    channels_out: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    dense: bool = False

    @property
    def rows(self) -> int:
        reach = (self.kernel[0] - 1) * self.dilation[0] + 1
        return (self.height + self.pad[0] + self.pad[2] - reach) // self.stride[0] + 1

    @property
    def columns(self) -> int:
        reach = (self.kernel[1] - 1) * self.dilation[1] + 1
        return (self.width + self.pad[1] + self.pad[3] - reach) // self.stride[1] + 1

    @property
    def depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.channels_in

    @property
    def flops(self) -> int:
        """A multiply-add counted as two."""
        depth = self.kernel[0] * self.kernel[1] * self.channels_in // self.groups
        return 2 * self.batch * self.rows * self.columns * self.channels_out * depth

    @property
    def name(self) -> str:
        if self.dense:
            return f"dense {self.channels_in}→{self.channels_out}"
        kind = "depthwise " if self.depthwise else f"{self.channels_in}→{self.channels_out} "
        size = self.channels_in if self.depthwise else ""
        window = f"{self.kernel[0]}×{self.kernel[1]}" + (f"/{self.stride[0]}" if self.stride[0] > 1 else "")
        return f"{kind}{size}{' ' if size else ''}{window} at {self.height}×{self.width}"


class Row(msgspec.Struct, frozen=True):
    """One convolution; times in ms by variant.  ``kernels_ms`` is by the GPU's own clock, ``errors`` says which variants do
    not run."""

    name: str
    shape: dict[str, Any]
    flops: int
    count: dict[str, int]
    times: dict[str, Statistics]
    kernels_ms: dict[str, float]
    gflops: dict[str, float]
    share_of_peak: dict[str, float]
    errors: dict[str, str]

    @property
    def ours(self) -> float:
        """ms of what a network would get."""
        return self.times["tuned" if "tuned" in self.times else "estimate"].median


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """Geometric means and the least of ratios of speed, over the rows that have both."""
    ratios = {
        "of_cudnn": [r.times["cudnn"].median / r.ours for r in rows if "cudnn" in r.times and _runs(r)],
        "estimate_of_cudnn": _ratios(rows, "cudnn", "estimate"),
        "of_stock": [r.times["stock"].median / r.ours for r in rows if "stock" in r.times and _runs(r)],
        "estimate_over_tuned": _ratios(rows, "estimate", "tuned"),
        "share_of_peak": [
            max(r.share_of_peak[n] for n in ("estimate", "tuned") if n in r.times) for r in rows if _runs(r)
        ],
    }
    means = {name: float(np.exp(np.mean(np.log(values)))) for name, values in ratios.items() if values}
    least = {f"least_{name}": min(values) for name, values in ratios.items() if values}
    slowest = ratios["estimate_over_tuned"]
    return means | least | ({"most_estimate_over_tuned": max(slowest)} if slowest else {})


def _runs(row: Row) -> bool:
    return "estimate" in row.times or "tuned" in row.times


def _ratios(rows: Iterable[Row], over: str, under: str) -> list[float]:
    """Of times."""
    return [r.times[over].median / r.times[under].median for r in rows if over in r.times and under in r.times]
