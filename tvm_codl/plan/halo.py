"""Halo: the boxes of its inputs that each of many pieces of an operator reads, halos included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_codl.graph.many import Integers
from tvm_codl.graph.opgraph import Operator, OpGraph, Shape
from tvm_codl.graph.slab import Need
from tvm_codl.graph.split import Axis, needs

Boxes = NDArray[np.int64]


def read_boxes(operator: Operator, graph: OpGraph, axis: Axis, lo: Integers, hi: Integers) -> list[Boxes]:
    """For each input a box for each piece ``[lo[i], hi[i])`` along ``axis``: shape (pieces, rank, 2), end exclusive.

    Raises :class:`tvm_codl.graph.split.NoSplit` where one of them is no piece.
    """
    result = [whole_boxes(graph.tensors[id].shape, len(lo)) for id in operator.inputs]
    for rows, parts in needs(operator, graph, axis.name, lo, hi):
        for read, part in zip(result, parts, strict=True):
            if part is not None:
                read[rows, part.axis, 0], read[rows, part.axis, 1] = part.lo, part.hi
    return result


def boxes(shape: Shape, parts: Sequence[Need]) -> Boxes:
    """Parts of a tensor as boxes, shape (parts, rank, 2); a tensor without axes has one of one index."""
    result = whole_boxes(shape, len(parts))
    for row, part in enumerate(parts):
        if part is not None:
            result[row, part.axis] = (part.lo, part.hi)
    return result


def whole_boxes(shape: Shape, count: int) -> Boxes:
    """Boxes of all of a tensor."""
    result = np.zeros((count, len(shape or (1,)), 2), dtype=np.int64)
    result[:, :, 1] = shape or (1,)
    return result
