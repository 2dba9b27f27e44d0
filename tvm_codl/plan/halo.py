"""Halo: the boxes of its inputs that each of many pieces of an operator reads, halos included.

A planner asks about hundreds of pieces of every operator.  Where an operator is a convolution, a pooling, a product or
element-wise, with only element-wise operators after it, the boxes are plain arithmetic on a piece's two ends; other
operators' pieces are asked one by one.  Either way they are those of :func:`tvm_codl.graph.split.piece`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.graph.names import anchor_of
from tvm_codl.graph.opgraph import Node, Operator, OpGraph, Shape
from tvm_codl.graph.rule import window_pads
from tvm_codl.graph.rules import RULES, bias_add, elementwise
from tvm_codl.graph.slab import Need
from tvm_codl.graph.split import Axis, arg_shapes, piece
from tvm_codl.records.arithmetic import Integers, simple

Boxes = NDArray[np.int64]
#: An axis and, for each piece, the first index of it and the one behind the last; None for everything.
_Part = tuple[int, Integers, Integers] | None

_WINDOWS = ("nn.max_pool2d", "nn.avg_pool2d")
_GLOBALS = ("nn.global_max_pool2d", "nn.global_avg_pool2d")


def read_boxes(operator: Operator, graph: OpGraph, axis: Axis, lo: Integers, hi: Integers) -> list[Boxes]:
    """For each input a box for each piece ``[lo[i], hi[i])`` along ``axis``: shape (pieces, rank, 2), end exclusive.

    Raises :class:`tvm_codl.graph.split.NoSplit` where one of them is no piece.
    """
    shapes = [graph.tensors[id].shape for id in operator.inputs]
    parts = _plain(operator, graph, axis.index, lo, hi)
    if parts is not None:
        return [_filled(shape, part, len(lo)) for shape, part in zip(shapes, parts, strict=True)]
    needs = _needs_of(msgspec.msgpack.encode((operator.body, operator.consts, shapes)), axis.index)
    ends = list(zip(lo.tolist(), hi.tolist(), strict=True))
    for end in ends:
        if end not in needs:
            needs[end] = piece(operator, graph, axis.name, *end).inputs
    return [boxes(shape, [needs[end][index] for end in ends]) for index, shape in enumerate(shapes)]


@lru_cache(maxsize=1024)
def _needs_of(structure: bytes, index: int) -> dict[tuple[int, int], Sequence[Need]]:
    """What is known of an operator's pieces along an axis; equal operators share it, as networks repeat their blocks."""
    return {}


def boxes(shape: Shape, needs: Sequence[Need]) -> Boxes:
    """Parts of a tensor as boxes, shape (parts, rank, 2); a tensor without axes has one of one index."""
    found = whole_boxes(shape, len(needs))
    for row, need in enumerate(needs):
        if need is not None:
            found[row, need.axis] = (need.lo, max(need.lo, need.hi))
    return found


def whole_boxes(shape: Shape, count: int) -> Boxes:
    found = np.zeros((count, len(shape or (1,)), 2), dtype=np.int64)
    found[:, :, 1] = shape or (1,)
    return found


def _filled(shape: Shape, part: _Part, count: int) -> Boxes:
    found = whole_boxes(shape, count)
    if part is not None:
        axis, lo, hi = part
        found[:, axis, 0], found[:, axis, 1] = lo, hi
    return found


def _plain(operator: Operator, graph: OpGraph, index: int, lo: Integers, hi: Integers) -> list[_Part] | None:
    """The part of each input, or None where that is no plain arithmetic."""
    body = operator.body
    anchor, shape = anchor_of(body), body[-1].results[0]
    if not simple(operator, graph, anchor, shape):
        return None
    node, found = body[anchor], dict[int, _Part]()
    elements = RULES.get(node.op) in (elementwise, bias_add)
    if not elements:
        if anchor or any(ref.source != "const" for ref in node.args[1:]):
            return None
        shapes = arg_shapes(operator, node, graph)
        data = _windows(node, shapes, index, lo, hi) or _product(node, shapes, index, lo, hi)
        if data is None:
            return None
        if node.args[0].source == "input":
            found[node.args[0].index] = data[0]
    for other in body:
        if other is node and not elements:
            continue
        for ref, arg in zip(other.args, arg_shapes(operator, other, graph), strict=True):
            if ref.source == "input":
                found[ref.index] = _broadcast(arg, shape, index, lo, hi, other)
    return [found[i] for i in range(len(operator.inputs))] if len(found) == len(operator.inputs) else None


def _broadcast(arg: Shape, shape: Shape, index: int, lo: Integers, hi: Integers, node: Node) -> _Part:
    if RULES[node.op] is bias_add and len(arg) == 1 and len(shape) > 1:
        return (0, lo, hi) if int(node.attrs["axis"]) % len(shape) == index else None
    axis = index - (len(shape) - len(arg))
    return None if axis < 0 or (arg[axis] == 1 and shape[index] != 1) else (axis, lo, hi)


def _windows(node: Node, shapes: Sequence[Shape], index: int, lo: Integers, hi: Integers) -> tuple[_Part] | None:
    """What of its data a convolution or a pooling reads, as the one entry of a tuple."""
    attrs, data = node.attrs, shapes[0]
    pool = node.op in _WINDOWS
    if node.op in _GLOBALS:
        return ((index, lo, hi),)
    if not pool and node.op != "nn.conv2d":
        return None
    layout, kernels = str(attrs["layout" if pool else "data_layout"]), str(attrs.get("kernel_layout") or "")
    if len(layout) != 4 or (not pool and (len(kernels) != 4 or attrs.get("out_layout") not in (None, "", layout))):
        return None
    letter = layout[index]
    if letter == "N" or (pool and letter == "C"):
        return ((index, lo, hi),)
    if letter == "C":
        groups = int(attrs["groups"])
        if groups == 1:
            return (None,)
        outputs, inputs = node.results[0][index] // groups, data[index] // groups
        if np.any(lo % outputs) or np.any(hi % outputs):
            return None
        return ((index, lo // outputs * inputs, hi // outputs * inputs),)
    dim = "HW".index(letter)
    size = attrs["pool_size"][dim] if pool else shapes[1][kernels.index(letter)]
    first = lo * attrs["strides"][dim] - window_pads(list(attrs["padding"]))[dim]
    last = first + (hi - lo - 1) * attrs["strides"][dim] + (size - 1) * attrs["dilation"][dim] + 1
    begin, end = np.maximum(first, 0), np.minimum(last, data[index])
    return None if np.any(begin >= end) else ((index, begin, end),)


def _product(node: Node, shapes: Sequence[Shape], index: int, lo: Integers, hi: Integers) -> tuple[_Part] | None:
    if node.op != "nn.dense":
        return None
    return (None,) if index == len(node.results[0]) - 1 else ((index, lo, hi),)
