"""Delegate: which kernel TFLite's GPU delegate runs for an operator, and how it divides the work.

What ``schedules.py`` is for this project's own kernels: the schedule is known before anything runs, for it follows by
rule from the shape and the GPU.  The rules are those of TensorFlow Lite's ``delegates/gpu/common``: ``tasks/conv_generic.cc`` (``GuessBestParams``),
``task/util.cc`` (``GetRecommendedBlockSizeForConv``), ``task/work_group_picking.cc`` (``GetWorkGroupConv``) and
``selectors/operation_selector.cc`` (``IsSuitableForWinograd4x4To6x6``), for half precision.
"""

from __future__ import annotations

from math import ceil, prod
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.phones.operators import PhoneOperator
from tvm_codl.errors import UserError

Vendor = Literal["adreno", "mali", "powervr", "apple", "unknown"]
Triple = tuple[int, int, int]


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the delegate's rules ask of a GPU; the defaults stand for an unknown one.  ``wave``: threads in lockstep."""

    vendor: Vendor = "unknown"
    compute_units: int = 4
    wave: int = 32
    name: str = ""

    def __post_init__(self) -> None:
        if self.compute_units < 1 or self.wave < 1:
            raise ValueError("compute_units and wave are at least 1")


def read_gpus(path: Path) -> dict[str, Gpu]:
    """GPUs by phone, from a JSON file.  Raises :class:`UserError` for anything else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Gpu])
    except (OSError, msgspec.DecodeError) as error:
        example = '{"PHONE": {"vendor": "adreno", "compute_units": 2, "wave": 128}}'
        raise UserError(f"{path} names no phones' GPUs", str(error), f"write it as {example}") from error


class Schedule(msgspec.Struct, frozen=True):
    """``block`` is what a thread computes (columns, rows, slices of 4 channels), ``grid`` the threads, ``group`` the
    work-group, ``steps`` the iterations of a thread's loop over input slices and taps."""

    winograd: bool
    block: Triple
    grid: Triple
    group: Triple
    steps: int

    @property
    def threads(self) -> int:
        return prod(self.grid)

    @property
    def groups(self) -> int:
        return prod(ceil(size / group) for size, group in zip(self.grid, self.group, strict=True))


def is_winograd(op: PhoneOperator, gpu: Gpu) -> bool:
    """Whether the delegate takes the 4x4 to 6x6 Winograd kernel for a convolution.

    Adreno asks for twice the channels and four times the tiles, which no network here reaches.
    """
    deep = min(_up(op.in_channels, 4), _up(op.out_channels, 4)) >= 16
    wide = _up(op.out_hw, 4) ** 2 >= 32
    return gpu.vendor != "adreno" and op.kernel == 3 and op.stride == 1 and op.groups == 1 and deep and wide


def schedule(op: PhoneOperator, gpu: Gpu) -> Schedule:
    """The rules for convolutions; other operators count as convolutions of their size."""
    slices, depth = _up(op.out_channels, 4), _up(max(op.in_channels // op.groups, 1), 4)
    width = height = op.out_hw
    kernel = op.kernel if op.op != "concatenation" else 1
    pointwise = kernel == 1 and op.stride <= 1
    winograd = op.op == "conv_2d" and is_winograd(op, gpu)
    if winograd:  # the multiplication between the transforms: one row for each of the 36 places in a tile
        width, height, kernel, pointwise = _up(op.out_hw, 4) ** 2, 36, 1, True
    if op.op in ("depthwise_conv_2d", "max_pool_2d", "average_pool_2d", "mean", "concatenation"):
        depth = 1
    block = _block(gpu, width * height * slices, slices, pointwise)
    if winograd:
        block = (block[0] * block[1], 1, block[2])
    grid = (_up(width, block[0]), _up(height, block[1]), _up(slices, block[2]))
    if gpu.vendor == "powervr":
        grid = grid if winograd else (grid[0] * grid[1], 1, grid[2])
        group = (32, 1, 1)
    elif gpu.vendor in ("apple", "unknown"):
        group = (8, 4, 1)
    else:
        group = _work_group(grid, 64 if gpu.vendor == "adreno" else 16)
    return Schedule(winograd, block, grid, group, depth * kernel * kernel)


def _up(size: int, part: int) -> int:
    return -(-size // part)


def _block(gpu: Gpu, tasks: int, slices: int, pointwise: bool) -> Triple:
    per_unit = tasks / gpu.compute_units
    if gpu.vendor == "adreno":
        waves = per_unit / gpu.wave
        return (1, 1, 1) if waves <= 6 else (2, 1, 1) if waves <= 12 else (2, 1, 2) if waves <= 24 else (2, 2, 2)
    if gpu.vendor == "mali":
        size = 1 if per_unit <= 256 else 2 if per_unit <= 1536 else 4 if per_unit <= 4096 or not pointwise else 8
        if size >= 4 and slices in (1, 3):
            return (2, 2, 1)
        return {1: (1, 1, 1), 2: (2, 1, 1), 4: (2, 1, 2), 8: (2, 2, 2)}[size]
    if gpu.vendor == "powervr":
        deep = 4 if slices % 4 == 0 or slices >= 8 else 2 if slices % 2 == 0 or slices >= 4 else slices
        return (2, 1, deep)
    return (2, 2, 2)


def _work_group(grid: Triple, deepest: int, largest: int = 256) -> Triple:
    deep = next(size for size in range(min(deepest, grid[2]), 0, -1) if grid[2] % size == 0)
    flat = largest // deep
    wide = min(grid[0], flat)
    high = min(flat // wide, grid[1])
    if high == grid[1] and high % 2 == 0:
        high //= 2
    return wide, max(high, 1), deep
