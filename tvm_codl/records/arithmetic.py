"""Arithmetic of pieces: the numbers of many pieces of one operator, from their two ends.

That is possible for convolutions, poolings, products and element-wise operators with only element-wise operators after
them.  :mod:`.pieces` describes the others one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_codl.graph import split
from tvm_codl.graph.dtype import width
from tvm_codl.graph.flops import node_flops
from tvm_codl.graph.names import anchor_of
from tvm_codl.graph.opgraph import Node, Operator, OpGraph, Ref, Shape
from tvm_codl.graph.rule import window_pads
from tvm_codl.graph.rules import RULES, bias_add, elementwise
from tvm_codl.records import workload as one_by_one
from tvm_codl.records.workload import EXPONENTIAL, Workload

Integers = NDArray[np.int64]

#: The numbers of a :class:`Workload`, in the order of :func:`numbers_of`'s columns.
NUMBERS = (
    *("batch", "out_h", "out_w", "out_c", "in_h", "in_w", "in_c", "kernel_h", "kernel_w", "stride", "stride_w"),
    *("dilation", "dilation_w", "groups", "pad_top", "pad_left", "pad_bottom", "pad_right"),
    *("flops", "bytes_in", "bytes_weights", "bytes_out", "bytes_data", "bytes_relayout", "exponentials", "body"),
)
_WINDOWS = ("nn.max_pool2d", "nn.avg_pool2d")
_GLOBALS = ("nn.global_max_pool2d", "nn.global_avg_pool2d")


def numbers_along(
    operator: Operator, graph: OpGraph, whole: Workload, index: int, lo: Integers, hi: Integers
) -> Integers | None:
    """:func:`numbers_of` for the pieces ``[lo, hi)`` along the output's axis number ``index``.

    None for an operator whose pieces are no plain arithmetic.
    """
    body = operator.body
    anchor = anchor_of(body)
    shape = body[-1].results[0]
    if not simple(operator, graph, anchor, shape):
        return None
    node = body[anchor]
    size = hi - lo
    fields: dict[str, Any] = {name: getattr(whole, name) for name in NUMBERS}
    plain = RULES.get(node.op) in (elementwise, bias_add)
    if anchor != 0 and not plain:
        return None
    shapes = split.arg_shapes(operator, node, graph)
    parts: dict[Ref, Any] = {}
    if not plain:
        answer = _ANCHORS.get(node.op, _none)(node, shapes, index, lo, hi, fields)
        if answer is None:
            return None
        parts = dict(zip(node.args, answer, strict=True))
    for other in body:
        if other is node and not plain:
            continue
        for ref, arg in zip(other.args, split.arg_shapes(operator, other, graph), strict=True):
            if ref.source != "node":
                parts[ref] = _broadcast(arg, shape, index, size, other)
    types = {
        "input": [graph.tensors[i].dtype for i in operator.inputs],
        "const": [const.dtype for const in operator.consts],
    }

    def total(source: str) -> Any:
        return sum(
            math.prod(part) * width(types[source][ref.index]) for ref, part in parts.items() if ref.source == source
        )

    flops = sum(node_flops(n, split.arg_shapes(operator, n, graph)) for n in body)
    out = _with(shape, index, size)
    fields["flops"] = flops // shape[index] * size
    if flops % shape[index]:
        return None
    fields["bytes_in"], fields["bytes_weights"] = total("input"), total("const")
    fields["bytes_out"] = math.prod(out) * width(body[-1].dtype)
    first = node.args[0] if node.args else None
    data = parts.get(first) if first is not None and first.source != "node" else out
    if data is None:
        return None
    fields["bytes_data"] = math.prod(data) * width(node.dtype)
    fields["bytes_relayout"] = fields["bytes_out"] if math.prod(shape[:index]) > 1 else 0
    fields["exponentials"] = sum(n.op in EXPONENTIAL for n in body) * math.prod(out)
    layout = one_by_one.layout_of(node)
    fields["batch"], fields["out_h"], fields["out_w"], fields["out_c"] = one_by_one.image(
        out, str(node.attrs.get("out_layout") or layout)
    )
    _, fields["in_h"], fields["in_w"], fields["in_c"] = one_by_one.image(data, layout)
    result = np.empty((len(size), len(NUMBERS)), dtype=np.int64)
    for column, name in enumerate(NUMBERS):
        result[:, column] = fields[name]
    return result


def simple(operator: Operator, graph: OpGraph, anchor: int, shape: Shape) -> bool:
    """Element-wise operators of one shape around the anchor, and no argument used twice."""
    refs = [ref for node in operator.body for ref in node.args if ref.source != "node"]
    return (
        len(set(refs)) == len(refs)
        and all(node.results == (shape,) for node in operator.body)
        and all(RULES.get(node.op) in (elementwise, bias_add) for at, node in enumerate(operator.body) if at != anchor)
        and len({ref.index for ref in refs if ref.source == "input"}) == len(operator.inputs)
        and len({ref.index for ref in refs if ref.source == "const"}) == len(operator.consts)
    )


def _with(shape: Sequence[Any], axis: int, size: Any) -> tuple[Any, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _broadcast(arg: Shape, shape: Shape, index: int, size: Integers, node: Node) -> tuple[Any, ...]:
    """The part of an element-wise operator's argument."""
    if RULES[node.op] is bias_add and len(arg) == 1 and len(shape) > 1:
        own = int(node.attrs["axis"]) % len(shape)
        return _with(arg, 0, size) if own == index else arg
    axis = index - (len(shape) - len(arg))
    if axis < 0 or (arg[axis] == 1 and shape[index] != 1):
        return arg
    return _with(arg, axis, size)


_Anchor = Callable[[Node, Sequence[Shape], int, Integers, Integers, dict[str, Any]], "list[tuple[Any, ...]] | None"]


def _none(
    node: Node, shapes: Sequence[Shape], index: int, lo: Integers, hi: Integers, fields: dict[str, Any]
) -> list[tuple[Any, ...]] | None:
    return None


def _rows(
    node: Node, dim: int, kernel: int, rows: int, lo: Integers, hi: Integers, fields: dict[str, Any], pool: bool
) -> Integers | None:
    """Input rows of a window's output rows; the padding goes into ``fields`` (:func:`graph.rule.window_rows`)."""
    stride, pads = node.attrs["strides"][dim], window_pads(list(node.attrs["padding"]))
    first = lo * stride - pads[dim]
    last = (hi - 1) * stride - pads[dim] + kernel
    begin, end = np.maximum(first, 0), np.minimum(last, rows)
    if np.any(begin >= end):
        return None
    before, after = ("pad_top", "pad_bottom") if dim == 0 else ("pad_left", "pad_right")
    fields[before] = begin - first
    fields[after] = np.minimum(last - end, pads[dim + 2]) if pool else last - end
    result: Integers = end - begin
    return result


def _conv2d(
    node: Node, shapes: Sequence[Shape], index: int, lo: Integers, hi: Integers, fields: dict[str, Any]
) -> list[tuple[Any, ...]] | None:
    attrs, (data, weight) = node.attrs, shapes
    layout, kernels = str(attrs["data_layout"]), str(attrs["kernel_layout"])
    if len(layout) != 4 or len(kernels) != 4 or attrs.get("out_layout") not in (None, "", layout):
        return None
    letter, size = layout[index], hi - lo
    if letter == "N":
        return [_with(data, index, size), weight]
    if letter == "C":
        return _conv2d_channels(node, shapes, index, size, fields)
    dim = "HW".index(letter)
    kernel = (weight[kernels.index(letter)] - 1) * attrs["dilation"][dim] + 1
    rows = _rows(node, dim, kernel, data[index], lo, hi, fields, pool=False)
    return None if rows is None else [_with(data, index, rows), weight]


def _conv2d_channels(
    node: Node, shapes: Sequence[Shape], index: int, size: Integers, fields: dict[str, Any]
) -> list[tuple[Any, ...]] | None:
    (data, weight), groups, kernels = shapes, int(node.attrs["groups"]), str(node.attrs["kernel_layout"])
    out = kernels.index("O")
    if groups == 1:
        return [data, _with(weight, out, size)]
    outputs = node.results[0][index]
    per_group = outputs // groups
    left = size // per_group
    # A single group left changes the kernel's layout: that is for the rule itself.
    if np.any(size % per_group) or np.any(left == 1):
        return None
    fields["groups"] = left
    by_group = weight[out] == groups != outputs
    return [_with(data, index, left * (data[index] // groups)), _with(weight, out, left if by_group else size)]


def _pool2d(
    node: Node, shapes: Sequence[Shape], index: int, lo: Integers, hi: Integers, fields: dict[str, Any]
) -> list[tuple[Any, ...]] | None:
    (data,), layout, attrs = shapes, str(node.attrs["layout"]), node.attrs
    if len(layout) != 4:
        return None
    if layout[index] in "NC":
        return [_with(data, index, hi - lo)]
    dim = "HW".index(layout[index])
    kernel = (attrs["pool_size"][dim] - 1) * attrs["dilation"][dim] + 1
    rows = _rows(node, dim, kernel, data[index], lo, hi, fields, pool=True)
    return None if rows is None else [_with(data, index, rows)]


def _global_pool2d(
    node: Node, shapes: Sequence[Shape], index: int, lo: Integers, hi: Integers, fields: dict[str, Any]
) -> list[tuple[Any, ...]] | None:
    return [_with(shapes[0], index, hi - lo)]


def _dense(
    node: Node, shapes: Sequence[Shape], index: int, lo: Integers, hi: Integers, fields: dict[str, Any]
) -> list[tuple[Any, ...]] | None:
    data, weight = shapes
    if index == len(node.results[0]) - 1:
        return [data, _with(weight, 0, hi - lo)]
    return [_with(data, index, hi - lo), weight]


_ANCHORS: dict[str, _Anchor] = {
    "nn.conv2d": _conv2d,
    "nn.dense": _dense,
    **dict.fromkeys(_WINDOWS, _pool2d),
    **dict.fromkeys(_GLOBALS, _global_pool2d),
}
