"""Pieces: many pieces of a network's operators, with their numbers computed by numpy instead of one by one.

A planner asks about thousands of pieces at once.  Where an operator is a convolution, a pooling, a product or
element-wise, with only element-wise operators after it, each number of a piece is plain arithmetic on its two ends;
other operators' pieces are described one by one.  Either way the numbers equal those of :class:`Workload`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.graph import split
from tvm_codl.graph.flops import node_flops
from tvm_codl.graph.names import anchor_of
from tvm_codl.graph.opgraph import Node, Operator, OpGraph, Ref, Shape
from tvm_codl.graph.rule import window_pads
from tvm_codl.graph.rules import RULES, bias_add, elementwise
from tvm_codl.records import workload as one_by_one
from tvm_codl.records.workload import EXPONENTIAL, Cut, Workload

Integers = NDArray[np.int64]

#: The numbers of a :class:`Workload`, in the order of :func:`numbers_of`'s columns.
NUMBERS = (
    *("batch", "out_h", "out_w", "out_c", "in_h", "in_w", "in_c", "kernel_h", "kernel_w", "stride", "stride_w"),
    *("dilation", "dilation_w", "groups", "pad_top", "pad_left", "pad_bottom", "pad_right"),
    *("flops", "bytes_in", "bytes_weights", "bytes_out", "bytes_data", "bytes_relayout", "exponentials", "body"),
)
_WINDOWS = ("nn.max_pool2d", "nn.avg_pool2d")
_GLOBALS = ("nn.global_max_pool2d", "nn.global_avg_pool2d")


class Pieces(Sequence[Workload]):
    """A sequence of workloads of one network.

    ``numbers`` has shape (pieces, len(NUMBERS)); ``wholes`` are the operators, ``whole_of`` says which one a piece is
    of; ``axes``, ``lo``, ``hi``, ``extents`` say which part of it (axis ``""``: the whole operator).
    """

    def __init__(self, graph: OpGraph, like: Pieces | None = None) -> None:
        """``like``: pieces of the same network, whose operators need not be described again."""
        self.graph = graph
        self.wholes: list[Workload] = [] if like is None else list(like.wholes)
        self._operators: list[Operator] = [] if like is None else list(like._operators)
        self._place: dict[int, int] = {} if like is None else dict(like._place)
        self._groups: list[tuple[int, str, Integers, Integers, Integers, int]] = []

    def add(self, operator: Operator, axis: str = "", lo: Sequence[int] = (0,), hi: Sequence[int] = (0,)) -> None:
        """Appends the operator, or its pieces ``[lo[i], hi[i])`` along ``axis``; :class:`split.NoSplit` if it has none."""
        place = self._described(operator)
        los, his = np.asarray(lo, dtype=np.int64), np.asarray(hi, dtype=np.int64)
        if not axis:
            numbers = np.tile(numbers_of([self.wholes[place]]), (len(los), 1))
            self._groups.append((place, "", los * 0, his * 0, numbers, 0))
            return
        found = _axis(operator, self.graph, axis)
        numbers = _numbers(operator, self.graph, self.wholes[place], found, los, his)
        self._groups.append((place, axis, los, his, numbers, found.extent))

    def _described(self, operator: Operator) -> int:
        place = self._place.get(operator.id)
        if place is None:
            place = self._place[operator.id] = len(self.wholes)
            self.wholes.append(one_by_one.described(operator, self.graph))
            self._operators.append(operator)
        return place

    def __len__(self) -> int:
        return sum(len(group[2]) for group in self._groups)

    @overload
    def __getitem__(self, index: int) -> Workload: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Workload]: ...

    def __getitem__(self, index: int | slice) -> Workload | Sequence[Workload]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        for place, axis, lo, hi, _, _ in self._groups:
            if 0 <= at < len(lo):
                return self._workload(place, axis, int(lo[at]), int(hi[at]))
            at -= len(lo)
        raise IndexError(index)

    def _workload(self, place: int, axis: str, lo: int, hi: int) -> Workload:
        if not axis:
            return self.wholes[place]
        return one_by_one.workloads(self._operators[place], self.graph, [(axis, lo, hi)])[0]

    @property
    def numbers(self) -> Integers:
        if not self._groups:
            return np.zeros((0, len(NUMBERS)), dtype=np.int64)
        return np.concatenate([group[4] for group in self._groups])

    @property
    def whole_of(self) -> list[int]:
        return [group[0] for group in self._groups for _ in range(len(group[2]))]

    @property
    def axes(self) -> list[str]:
        return [group[1] for group in self._groups for _ in range(len(group[2]))]

    @property
    def sizes(self) -> Integers:
        """Units along the cut axis; 1 for a whole operator."""
        return np.array([s for g in self._groups for s in ((g[3] - g[2]) if g[1] else g[2] * 0 + 1).tolist()], np.int64)

    @property
    def extents(self) -> Integers:
        """The cut axis's units in the whole operator; 1 for a whole operator."""
        return np.array([e for g in self._groups for e in [g[5] or 1] * len(g[2])], np.int64)

    @property
    def keys(self) -> list[str]:
        """The canonical keys, as :attr:`Workload.key`."""
        found: list[str] = []
        for place, axis, lo, hi, _, extent in self._groups:
            whole = self.wholes[place]
            if not axis:
                found += [whole.key] * len(lo)
                continue
            index = split.axes(self._operators[place], self.graph)[axis].index
            head = whole.key[: whole.key.rindex('"cut":')] + '"cut":'
            # The text of a cut without its ends is the same for all of them.
            text = msgspec.json.encode(Cut(axis, index, -1, -2, extent)).decode()
            before, rest = text.split("-1", 1)
            middle, after = rest.split("-2", 1)
            start = head + before
            end = after + "}"
            found += [f"{start}{a}{middle}{b}{end}" for a, b in zip(lo.tolist(), hi.tolist(), strict=True)]
        return found


def add_halves(
    first: Pieces,
    second: Pieces,
    operator: Operator,
    axis: str,
    cuts: Sequence[int],
    starts: Sequence[int] | None = None,
) -> None:
    """Appends what lies before each cut to ``first`` and what lies behind it to ``second``, both of one network.

    ``starts``: where the second pieces begin instead, for pieces that overlap.
    """
    found, at = _axis(operator, first.graph, axis), np.asarray(cuts, dtype=np.int64)
    start = at if starts is None else np.asarray(starts, dtype=np.int64)
    place, other = first._described(operator), second._described(operator)
    lo, hi = np.concatenate([at * 0, start]), np.concatenate([at, at * 0 + found.extent])
    numbers, n = _numbers(operator, first.graph, first.wholes[place], found, lo, hi), len(at)
    first._groups.append((place, axis, lo[:n], hi[:n], numbers[:n], found.extent))
    second._groups.append((other, axis, lo[n:], hi[n:], numbers[n:], found.extent))


def _axis(operator: Operator, graph: OpGraph, name: str) -> split.Axis:
    found = split.axes(operator, graph).get(name)
    if found is None:
        raise split.NoSplit(f"{operator.name} has no axis {name!r}")
    return found


def _numbers(
    operator: Operator, graph: OpGraph, whole: Workload, axis: split.Axis, lo: Integers, hi: Integers
) -> Integers:
    numbers = numbers_along(operator, graph, whole, axis.index, lo, hi)
    if numbers is None:
        known = _rows_of(whole.key, axis.index)
        ends = list(zip(lo.tolist(), hi.tolist(), strict=True))
        missing = [end for end in dict.fromkeys(ends) if end not in known]
        rows = numbers_of(one_by_one.workloads(operator, graph, [(axis.name, *end) for end in missing]))
        known.update(zip(missing, rows, strict=True))
        numbers = np.array([known[end] for end in ends], dtype=np.int64).reshape(len(ends), len(NUMBERS))
    return numbers


@lru_cache(maxsize=1024)
def _rows_of(key: str, index: int) -> dict[tuple[int, int], Integers]:
    """The numbers that are known of an operator's pieces along an axis; networks repeat their blocks."""
    return {}


def numbers_of(workloads: Sequence[Workload]) -> Integers:
    """Shape (workloads, len(NUMBERS))."""
    return np.array([[getattr(w, name) for name in NUMBERS] for w in workloads], dtype=np.int64).reshape(
        len(workloads), len(NUMBERS)
    )


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
            math.prod(part) * one_by_one.width(types[source][ref.index])
            for ref, part in parts.items()
            if ref.source == source
        )

    flops = sum(node_flops(n, split.arg_shapes(operator, n, graph)) for n in body)
    out = _with(shape, index, size)
    fields["flops"] = flops // shape[index] * size
    if flops % shape[index]:
        return None
    fields["bytes_in"], fields["bytes_weights"] = total("input"), total("const")
    fields["bytes_out"] = math.prod(out) * one_by_one.width(body[-1].dtype)
    first = node.args[0] if node.args else None
    data = parts.get(first) if first is not None and first.source != "node" else out
    if data is None:
        return None
    fields["bytes_data"] = math.prod(data) * one_by_one.width(node.dtype)
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
