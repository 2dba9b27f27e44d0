"""Halo: the boxes of its inputs that each of many pieces of an operator reads, halos included."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.graph.many import Integers
from tvm_codl.graph.opgraph import Operator, OpGraph, Shape
from tvm_codl.graph.split import Axis, needs
from tvm_codl.plan.plan import Placement

Boxes = NDArray[np.int64]


class Parts(msgspec.Struct, frozen=True):
    """Boxes of one tensor for each of some placements: ``cpu`` and ``gpu`` are (placements, rank, 2)."""

    cpu: Boxes
    gpu: Boxes


def whole_boxes(shape: Shape, count: int) -> Boxes:
    """Boxes of all of a tensor; one without axes counts as one index."""
    result = np.zeros((count, len(shape or (1,)), 2), dtype=np.int64)
    result[:, :, 1] = shape or (1,)
    return result


def read_boxes(operator: Operator, graph: OpGraph, axis: Axis, lo: Integers, hi: Integers) -> list[Boxes]:
    """For each input a box for each piece ``[lo[i], hi[i])`` along ``axis``: shape (pieces, rank, 2), end exclusive.

    Raises :class:`tvm_codl.graph.split.NoSplit` where one of them is no piece.
    """
    result = [whole_boxes(graph.tensors[id].shape, len(lo)) for id in operator.inputs]
    for rows, parts in needs(operator, graph, axis.index, lo, hi):
        for read, part in zip(result, parts, strict=True):
            if part is not None:
                read[rows, part.axis, 0], read[rows, part.axis, 1] = part.lo, part.hi
    return result


def read_parts(operator: Operator, graph: OpGraph, axis: Axis, splits: Sequence[Placement]) -> list[Parts]:
    """For each input what either processor reads of it, for each of the ``splits`` along ``axis``."""
    lo, hi = ends(axis, splits).transpose(2, 1, 0).reshape(2, -1)
    both = read_boxes(operator, graph, axis, lo, hi)
    return [Parts(read[: len(splits)], read[len(splits) :]) for read in both]


def ends(axis: Axis, splits: Sequence[Placement]) -> Integers:
    """Begin and end of the CPU's and of the GPU's part, shape (splits, 2, 2)."""
    return np.array([split.parts(axis.extent) for split in splits], dtype=np.int64)
