"""Crossing: what of a tensor has to change processor or layout between its producer's placement and its consumer's.

Every placement says which box of each tensor either processor holds (as producer) or needs (as consumer).  What a
processor needs and does not hold crosses.  Halos, whole operators, splits along one axis or two are all this rule.

Layout: a whole tensor lies in its natural order, whose outermost axis is the first with more than one index (rows,
for one image in NHWC).  Pieces along that axis are contiguous in it.  A tensor that is cut along another axis lies
with that axis outermost: whoever writes a part changes its layout, and whoever reads one changes it back, except
where a processor reads exactly what it wrote, for then it stays inside the kernels of one region.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.graph.opgraph import Operator, OpGraph, Shape, Tensor
from tvm_codl.graph.slab import Need, Slab
from tvm_codl.graph.split import Axis, piece
from tvm_codl.plan.plan import Placement

Numbers = NDArray[np.float64]
Boxes = NDArray[np.int64]

_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "float16": 2, "int16": 2, "int64": 8, "float64": 8}


class Parts(msgspec.Struct, frozen=True):
    """Boxes of one tensor for each placement of an operator: ``cpu`` and ``gpu`` are (placements, rank, 2)."""

    cpu: Boxes
    gpu: Boxes


class Crossing(msgspec.Struct, frozen=True):
    """Bytes for each pair (producer's placement, consumer's placement); three tables of that shape."""

    to_cpu: Numbers
    to_gpu: Numbers
    relayout: Numbers

    @property
    def tables(self) -> tuple[Numbers, Numbers, Numbers]:
        return self.to_cpu, self.to_gpu, self.relayout

    def __add__(self, other: Crossing) -> Crossing:
        return Crossing(self.to_cpu + other.to_cpu, self.to_gpu + other.to_gpu, self.relayout + other.relayout)


def held(tensor: Tensor, placements: Sequence[Placement], axes: dict[str, Axis]) -> Parts:
    """What each processor has of ``tensor``, an output of the operator with these placements."""
    return _parts(tensor.shape, [_held(placement, axes) for placement in placements])


def needed(operator: Operator, graph: OpGraph, placements: Sequence[Placement], axes: dict[str, Axis]) -> list[Parts]:
    """What each processor reads of each of the operator's inputs, in their order."""
    pairs = [_needed(operator, graph, placement, axes) for placement in placements]
    return [
        _parts(graph.tensors[tensor].shape, [(cpu[index], gpu[index]) for cpu, gpu in pairs])
        for index, tensor in enumerate(operator.inputs)
    ]


def size_of(dtype: str) -> float:
    """Bytes of one element."""
    return float(_BYTES.get(dtype, 4))


def volumes(tensor: Tensor, parts: Parts) -> tuple[Numbers, Numbers]:
    """Bytes of the CPU's and the GPU's box, for each placement."""
    cpu, gpu = (_volume(boxes[..., 1] - boxes[..., 0]) * size_of(tensor.dtype) for boxes in (parts.cpu, parts.gpu))
    return cpu, gpu


def on_host(tensor: Tensor) -> Parts:
    """The network's inputs and outputs are the CPU's, whole."""
    return _parts(tensor.shape, [(None, _nothing(0))])


def crossing(tensor: Tensor, producer: Parts, consumer: Parts, written: bool = True) -> Crossing:
    """Bytes that cross or change layout, for every pair of placements.

    ``written`` is False for the network's inputs, which nobody rewrites: their layout changes in reading only.
    """
    size = size_of(tensor.dtype)
    to, rewritten = [], []
    in_place = np.array(True)
    plain = _contiguous(tensor.shape, producer.cpu) & _contiguous(tensor.shape, producer.gpu)
    for has, wants in ((producer.cpu[:, None], consumer.cpu[None]), (producer.gpu[:, None], consumer.gpu[None])):
        common = np.minimum(has[..., 1], wants[..., 1]) - np.maximum(has[..., 0], wants[..., 0])
        volume = _volume(wants[..., 1] - wants[..., 0])
        to.append(size * (volume - _volume(common)))
        same = (has == wants).all(axis=(-1, -2))
        in_place = in_place & (same | (plain[:, None] & _contiguous(tensor.shape, wants)))
        rewritten.append(size * (volume + _volume(has[..., 1] - has[..., 0]) * written))
    # Both processors rewrite their parts at the same time.
    return Crossing(to[0], to[1], np.where(in_place, 0.0, np.maximum(*rewritten)))


def needs_other(
    graph: OpGraph,
    tensor: Tensor,
    producer: tuple[Placement, dict[str, Axis]],
    consumer: tuple[Operator, Placement, dict[str, Axis]],
) -> tuple[bool, bool]:
    """(CPU needs something that the GPU made, GPU needs something that the CPU made) of ``tensor``."""
    operator, placement, axes = consumer
    wants = needed(operator, graph, [placement], axes)
    found = [
        crossing(tensor, held(tensor, [producer[0]], producer[1]), parts)
        for id, parts in zip(operator.inputs, wants, strict=True)
        if id == tensor.id
    ]
    return any(each.to_cpu.any() for each in found), any(each.to_gpu.any() for each in found)


def _nothing(axis: int) -> Slab:
    return Slab(axis, 0, 0)


def _held(placement: Placement, axes: dict[str, Axis]) -> tuple[Need, Need]:
    if placement.on == "split":
        axis = axes[placement.axis]
        return Slab(axis.index, 0, placement.at), Slab(axis.index, placement.at, axis.extent)
    return (None, _nothing(0)) if placement.on == "cpu" else (_nothing(0), None)


def _needed(
    operator: Operator, graph: OpGraph, placement: Placement, axes: dict[str, Axis]
) -> tuple[Sequence[Need], Sequence[Need]]:
    if placement.on == "split":
        extent, at = axes[placement.axis].extent, placement.at
        return (
            piece(operator, graph, placement.axis, 0, at).inputs,
            piece(operator, graph, placement.axis, at, extent).inputs,
        )
    whole: list[Need] = [None] * len(operator.inputs)
    nothing: list[Need] = [_nothing(0)] * len(operator.inputs)
    return (whole, nothing) if placement.on == "cpu" else (nothing, whole)


def _parts(shape: Shape, pairs: Sequence[tuple[Need, Need]]) -> Parts:
    return Parts(_boxes(shape, [cpu for cpu, _ in pairs]), _boxes(shape, [gpu for _, gpu in pairs]))


def _boxes(shape: Shape, needs: Sequence[Need]) -> Boxes:
    shape = shape or (1,)
    boxes = np.zeros((len(needs), len(shape), 2), dtype=np.int64)
    boxes[:, :, 1] = shape
    for row, need in enumerate(needs):
        if need is not None:
            boxes[row, need.axis] = (need.lo, max(need.lo, need.hi))
    return boxes


def _volume(extents: Boxes) -> Numbers:
    result: Numbers = np.maximum(extents, 0).astype(np.float64).prod(axis=-1)
    return result


def _outermost(shape: Shape) -> int:
    return next((axis for axis, extent in enumerate(shape) if extent > 1), 0)


def _contiguous(shape: Shape, boxes: Boxes) -> NDArray[np.bool_]:
    """Whether a box of a tensor in natural order is one run of memory: it cuts the outermost axis only, or is empty."""
    extents = boxes[..., 1] - boxes[..., 0]
    full = extents == np.array(shape or (1,))
    full[..., _outermost(shape)] = True
    result: NDArray[np.bool_] = full.all(axis=-1) | (extents <= 0).any(axis=-1)
    return result
