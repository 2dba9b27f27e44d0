"""Work-groups of a real GPU: one vector of results for each work-item, neighbours in a group on neighbouring addresses."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import te

from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.target import gpu_of

#: Of a group's work-items, the share that may idle at the end of a row for the sake of cheaper indices.
IDLE = 1 / 8
#: Groups along a second dimension that every device allows.
GRID = 65535


def threads(gpu: Gpu, items: int, most: int = 0) -> int:
    """Work-items in a group: fewer, down to a warp, where ``items`` of them would leave compute units without one."""
    group = most or gpu.group
    while group // 2 >= gpu.warp and items < group * gpu.units:
        group //= 2
    return max(1, min(group, items))


def spread(stage: te.schedule.Stage, axes: list[Any], extents: list[int], lanes: int, most: int = 0) -> Any:
    """Binds ``axes`` of ``extents``, the last cut into vectors, to work-items; returns the axis of one work-item.

    ``most`` work-items make a group; 0 for the usual number.
    """
    axes, extents = list(axes), list(extents)
    if lanes > 1:
        axes[-1], lane = stage.split(axes[-1], lanes)
        extents[-1] //= lanes
        stage.vectorize(lane)
    group = threads(gpu_of(tvm.target.Target.current()), math.prod(extents), most)
    inner = _inner(extents, group)
    if inner < len(axes):
        stage.bind(stage.fuse(*axes[:-inner]), te.thread_axis("blockIdx.y"))
    block, thread = stage.split(stage.fuse(*axes[-inner:]), group)
    stage.bind(block, te.thread_axis("blockIdx.x"))
    stage.bind(thread, te.thread_axis("threadIdx.x"))
    return thread


def _inner(extents: list[int], group: int) -> int:
    """How many of the last axes to fuse: the fewest that fill groups, as each one more costs a division."""
    for count in range(1, len(extents)):
        items = math.prod(extents[-count:])
        idle = -items % group
        if idle <= IDLE * items and math.prod(extents[:-count]) <= GRID:
            return count
    return len(extents)
