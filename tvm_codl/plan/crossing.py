"""Crossing: what of a tensor changes processor, or is copied, between its producer's placement and its consumer's.

A placement says which box of each tensor either processor holds (as producer) or needs (as consumer).  What a processor
needs and does not hold crosses.  The same rule covers halos, whole operators, and splits along one axis or two.

Layout: a tensor lies in its natural order, whose outermost axis is the first with more than one index (rows, for one image in
NHWC).  Pieces along that axis are contiguous.  Pieces along another axis lie one behind the other: a reader of more than one,
or of a part of one, copies what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.graph.dtype import width
from tvm_codl.graph.opgraph import Operator, OpGraph, Shape, Tensor
from tvm_codl.graph.slab import outermost
from tvm_codl.graph.split import Axis
from tvm_codl.plan.halo import Boxes, Parts, ends, read_parts, whole_boxes
from tvm_codl.plan.plan import Placement

Numbers = NDArray[np.float64]


class Crossing(msgspec.Struct, frozen=True):
    """Bytes for each pair (producer's placement, consumer's placement); three tables of that shape."""

    to_cpu: Numbers
    to_gpu: Numbers
    joined: Numbers

    @property
    def tables(self) -> tuple[Numbers, Numbers, Numbers]:
        return self.to_cpu, self.to_gpu, self.joined

    def __add__(self, other: Crossing) -> Crossing:
        return Crossing(self.to_cpu + other.to_cpu, self.to_gpu + other.to_gpu, self.joined + other.joined)


def held(tensor: Tensor, placements: Sequence[Placement], axes: dict[str, Axis]) -> Parts:
    """What each processor holds of ``tensor``, an output of the operator with these placements."""
    parts = _undivided(tensor.shape, placements)
    for axis, rows, splits in _splits(placements, axes):
        parts.cpu[rows, axis.index], parts.gpu[rows, axis.index] = ends(axis, splits).swapaxes(0, 1)
    return parts


def needed(operator: Operator, graph: OpGraph, placements: Sequence[Placement], axes: dict[str, Axis]) -> list[Parts]:
    """What each processor reads of each of the operator's inputs, in their order."""
    result = [_undivided(graph.tensors[tensor].shape, placements) for tensor in operator.inputs]
    for axis, rows, splits in _splits(placements, axes):
        for parts, read in zip(result, read_parts(operator, graph, axis, splits), strict=True):
            parts.cpu[rows], parts.gpu[rows] = read.cpu, read.gpu
    return result


def _undivided(shape: Shape, placements: Sequence[Placement]) -> Parts:
    """All for the processor that runs the operator alone, and nothing for the other."""
    on = np.array([placement.on for placement in placements])
    parts = Parts(whole_boxes(shape, len(placements)), whole_boxes(shape, len(placements)))
    parts.cpu[on == "gpu", 0, 1] = parts.gpu[on == "cpu", 0, 1] = 0
    return parts


def _splits(
    placements: Sequence[Placement], axes: dict[str, Axis]
) -> Iterator[tuple[Axis, NDArray[np.intp], list[Placement]]]:
    """By axis, the numbers of its splits among ``placements``, and the splits."""
    for name, axis in axes.items():
        rows = np.array([i for i, p in enumerate(placements) if p.on == "split" and p.axis == name], dtype=np.intp)
        if len(rows):
            yield axis, rows, [placements[i] for i in rows.tolist()]


def volumes(tensor: Tensor, parts: Parts) -> tuple[Numbers, Numbers]:
    """Bytes of the CPU's and the GPU's box, for each placement."""
    cpu, gpu = (_volume(boxes[..., 1] - boxes[..., 0]) * width(tensor.dtype) for boxes in (parts.cpu, parts.gpu))
    return cpu, gpu


def on_host(tensor: Tensor) -> Parts:
    """What the processors hold of the network's inputs and outputs: the CPU has all."""
    return _undivided(tensor.shape, [Placement("cpu")])


def crossing(tensor: Tensor, producer: Parts, consumer: Parts) -> Crossing:
    """Bytes that cross or are copied together, for every pair of placements."""
    size = width(tensor.dtype)
    to, copied, in_place = [], [], np.array(True)
    plain = _contiguous(tensor.shape, producer.cpu) & _contiguous(tensor.shape, producer.gpu)
    for has, wants in ((producer.cpu, consumer.cpu), (producer.gpu, consumer.gpu)):
        held_volume, volume = _volume(has[..., 1] - has[..., 0]), _volume(wants[..., 1] - wants[..., 0])
        common, same = _common(has, wants, (held_volume > 0)[:, None], (volume > 0)[None])
        to.append(size * (volume - common))
        in_place = in_place & (same | (plain[:, None] & _contiguous(tensor.shape, wants)))
        copied.append(np.broadcast_to(size * volume, in_place.shape))
    # Both processors copy at the same time.
    joined = np.where(in_place, 0.0, np.maximum(*copied))
    overlap = np.flatnonzero(_overlap(producer))
    if len(overlap):
        # A reader to whom neither of two overlapping pieces is enough joins them: both are copied.
        own = [boxes[overlap, None] for boxes in (producer.cpu, producer.gpu)]
        pieces = size * np.maximum(*(_volume(boxes[..., 1] - boxes[..., 0]) for boxes in own))
        joined[overlap] += pieces * (_beyond(own, consumer.cpu) | _beyond(own, consumer.gpu))
    return Crossing(to[0], to[1], joined)


def _volume(extents: Boxes) -> Numbers:
    result: Numbers = np.maximum(extents, 0).astype(np.float64).prod(axis=-1)
    return result


def _common(
    has: Boxes, wants: Boxes, has_any: NDArray[np.bool_], wants_any: NDArray[np.bool_]
) -> tuple[Numbers, NDArray[np.bool_]]:
    """For each pair of boxes the number of indices that they share, and whether they are the same."""
    share, same = np.ones((len(has), len(wants))), np.ones((len(has), len(wants)), dtype=np.bool_)
    for axis in range(has.shape[1]):
        (lo, hi), (first, last) = has[:, axis].T, wants[:, axis].T
        ends = {*zip(lo.tolist(), hi.tolist(), strict=True), *zip(first.tolist(), last.tolist(), strict=True)}
        if len(ends) == 1:
            share *= max(hi[0] - lo[0], 0)
            continue
        extent = np.minimum(hi[:, None], last) - np.maximum(lo[:, None], first)
        share *= np.maximum(extent, 0)
        same &= (lo[:, None] == first) & (hi[:, None] == last)
    return share * (has_any & wants_any), same


def _beyond(own: Sequence[Boxes], wants: Boxes) -> NDArray[np.bool_]:
    """For each pair, whether a box of ``wants`` is not empty and lies in neither of two boxes.

    ``own`` holds the two, shape (pieces, 1, rank, 2).
    """
    inside = [((wants[..., 0] >= box[..., 0]) & (wants[..., 1] <= box[..., 1])).all(axis=-1) for box in own]
    result: NDArray[np.bool_] = (_volume(wants[..., 1] - wants[..., 0]) > 0) & ~inside[0] & ~inside[1]
    return result


def _overlap(parts: Parts) -> NDArray[np.bool_]:
    common = np.minimum(parts.cpu[..., 1], parts.gpu[..., 1]) - np.maximum(parts.cpu[..., 0], parts.gpu[..., 0])
    return np.asarray((common > 0).all(axis=-1))


def _contiguous(shape: Shape, boxes: Boxes) -> NDArray[np.bool_]:
    """Whether a box of a tensor in natural order is contiguous: it cuts the outermost axis only, or is empty."""
    extents = boxes[..., 1] - boxes[..., 0]
    full = extents == np.array(shape or (1,))
    full[..., outermost(shape)] = True
    result: NDArray[np.bool_] = full.all(axis=-1) | (extents <= 0).any(axis=-1)
    return result
