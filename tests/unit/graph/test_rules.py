"""Single split rules, without TVM: what they need is in range, and enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.graph.graphs import POOL
from tvm_codl.graph.opgraph import Shape
from tvm_codl.graph.rule import Answer, Case, NoSplit
from tvm_codl.graph.rules import RULES
from tvm_codl.graph.slab import Slab


def ask(op: str, attrs: dict[str, Any], args: list[Shape], result: Shape, want: Slab) -> Answer:
    return RULES[op].split(Case(op, attrs, tuple(args), result), want)


def cuts(extent: int) -> list[tuple[int, int]]:
    return [(lo, hi) for lo in range(extent) for hi in range(lo + 1, extent + 1)]


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2), st.booleans())
def test_pooling_windows(rows: int, size: int, stride: int, top: int, bottom: int, ceil: bool) -> None:
    """Each piece's windows, clipped to the data, are those of the whole."""
    assume(rows + top + bottom >= size)
    span = rows + top + bottom - size
    extent = (-(-span // stride) if ceil else span // stride) + 1
    attrs = {**POOL, "pool_size": [size, 1], "strides": [stride, 1], "padding": [top, 0, bottom, 0], "ceil_mode": ceil}

    def windows(count: int, have: int, before: int) -> list[tuple[int, int]]:
        starts = [index * stride - before for index in range(count)]
        return [(max(start, 0), min(start + size, have)) for start in starts]

    for lo, hi in cuts(extent):
        try:
            answer = ask("nn.max_pool2d", attrs, [(1, rows, 1, 1)], (1, extent, 1, 1), Slab(1, lo, hi))
        except NoSplit:
            continue
        (need,) = answer.args
        assert need is not None and 0 <= need.lo < need.hi <= rows
        before, _, after, _ = answer.attrs["padding"]
        left = need.extent + before + after - size
        assert (-(-left // stride) if ceil else left // stride) + 1 == hi - lo
        shifted = [(first + need.lo, last + need.lo) for first, last in windows(hi - lo, need.extent, before)]
        assert shifted == windows(extent, rows, top)[lo:hi]


@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 4), st.data())
def test_transposed_convolution_rows(rows: int, kernel: int, stride: int, data: st.DataObject) -> None:
    """Computed by hand on one column, each piece gives its part of the whole."""
    top, bottom = (data.draw(st.integers(0, kernel - 1)) for _ in range(2))
    extra = data.draw(st.integers(0, stride - 1))
    extent = (rows - 1) * stride + kernel - top - bottom + extra
    assume(extent > 1)
    values = np.arange(1.0, rows + 1)
    weights = np.arange(1.0, kernel + 1) ** 2

    def transposed(x: np.ndarray, before: int, after: int, more: int) -> np.ndarray:
        full = np.zeros((len(x) - 1) * stride + kernel + more)
        for index, value in enumerate(x):
            full[index * stride : index * stride + kernel] += value * weights
        return full[before : len(full) - after]

    attrs = {
        "strides": [stride, 1],
        "padding": [top, 0, bottom, 0],
        "output_padding": [extra, 0],
        "dilation": [1, 1],
        "groups": 1,
        "data_layout": "NCHW",
        "kernel_layout": "IOHW",
        "channels": 1,
    }
    full = transposed(values, top, bottom, extra)
    for lo, hi in cuts(extent):
        try:
            shapes: list[Shape] = [(1, 1, rows, 1), (1, 1, kernel, 1)]
            answer = ask("nn.conv2d_transpose", attrs, shapes, (1, 1, extent, 1), Slab(2, lo, hi))
        except NoSplit as error:
            assert "padding" in str(error)
            continue
        need = answer.args[0]
        assert need is not None
        before, _, after, _ = answer.attrs["padding"]
        more = answer.attrs["output_padding"][0]
        assert before >= 0 and after >= 0 and more >= 0
        np.testing.assert_array_equal(transposed(values[need.lo : need.hi], before, after, more), full[lo:hi])


@given(st.integers(2, 12), st.integers(2, 30), st.sampled_from(["half_pixel", "align_corners", "asymmetric"]))
def test_resized_rows(rows: int, results: int, mode: str) -> None:
    """A piece samples the same source positions as the whole, with the halo that interpolation reads."""
    corners = mode == "align_corners"

    def positions(source: int, target: int) -> np.ndarray:
        index = np.arange(target)
        if corners:
            return index * (source - 1) / max(target - 1, 1)
        shift = 0.5 if mode == "half_pixel" else 0.0
        return (index + shift) * source / target - shift

    attrs = {
        "size": [results, 1],
        "layout": "NHWC",
        "method": "linear",
        "coordinate_transformation_mode": mode,
        "rounding_method": "",
    }
    for lo, hi in cuts(results):
        try:
            answer = ask("image.resize2d", attrs, [(1, rows, 1, 1)], (1, results, 1, 1), Slab(1, lo, hi))
        except NoSplit:
            continue
        need, makes = answer.args[0], answer.makes
        assert need is not None and makes is not None
        assert 0 <= need.lo < need.hi <= rows
        assert makes.lo <= lo and hi <= makes.hi and makes.extent == answer.attrs["size"][0]
        ours = positions(need.extent, makes.extent)[lo - makes.lo : hi - makes.lo] + need.lo
        theirs = positions(rows, results)[lo:hi]
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
        assert max(0, np.floor(theirs.min() + 1e-9)) >= need.lo
        assert min(rows - 1, np.floor(theirs.max() - 1e-9) + 1) <= need.hi - 1


@given(st.integers(1, 8), st.integers(0, 4), st.integers(0, 4), st.sampled_from(["constant", "edge", "reflect"]))
def test_padding(rows: int, before: int, after: int, mode: str) -> None:
    assume(mode != "reflect" or max(before, after) < rows)
    values = np.arange(1.0, rows + 1)
    whole = np.pad(values, (before, after), mode=mode)  # type: ignore[call-overload]
    attrs = {"pad_width": [[before, after]], "pad_mode": mode}
    for lo, hi in cuts(len(whole)):
        try:
            answer = ask("nn.pad", attrs, [(rows,), ()], (len(whole),), Slab(0, lo, hi))
        except NoSplit:
            continue
        need, makes = answer.args[0], answer.makes
        assert need is not None and makes is not None
        ours = np.pad(values[need.lo : need.hi], answer.attrs["pad_width"][0], mode=mode)
        np.testing.assert_array_equal(ours, whole[makes.lo : makes.hi])
        assert makes.lo <= lo and hi <= makes.hi


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_concatenation_covers(extents: list[int]) -> None:
    total = sum(extents)
    args = [(extent,) for extent in extents]
    for lo, hi in cuts(total):
        parts = ask("concatenate", {"axis": 0}, args, (total,), Slab(0, lo, hi)).args
        start, found = 0, []
        for extent, part in zip(extents, parts, strict=True):
            assert part is not None and 0 <= part.lo <= part.hi <= extent
            found += range(start + part.lo, start + part.hi)
            start += extent
        assert found == list(range(lo, hi))


@pytest.mark.parametrize(
    ("op", "attrs", "args", "result", "want", "needs"),
    [
        ("transpose", {"axes": [0, 2, 3, 1]}, [(1, 2, 3, 4)], (1, 3, 4, 2), Slab(3, 0, 1), [Slab(1, 0, 1)]),
        ("transpose", {"axes": None}, [(2, 3)], (3, 2), Slab(0, 1, 2), [Slab(1, 1, 2)]),
        ("squeeze", {"axis": [0]}, [(1, 3, 2)], (3, 2), Slab(0, 1, 2), [Slab(1, 1, 2)]),
        ("expand_dims", {"axis": -1, "num_newaxis": 1}, [(3, 2)], (3, 2, 1), Slab(1, 0, 1), [Slab(1, 0, 1)]),
        ("reshape", {"newshape": [3, -1]}, [(3, 2, 2)], (3, 4), Slab(0, 1, 2), [Slab(0, 1, 2)]),
        ("nn.bias_add", {"axis": -1}, [(2, 4), (4,)], (2, 4), Slab(1, 1, 3), [Slab(1, 1, 3), Slab(0, 1, 3)]),
        ("nn.bias_add", {"axis": 1}, [(2, 4), (4,)], (2, 4), Slab(0, 0, 1), [Slab(0, 0, 1), None]),
        ("add", {}, [(2, 3, 4), (3, 1)], (2, 3, 4), Slab(1, 1, 2), [Slab(1, 1, 2), Slab(0, 1, 2)]),
        ("add", {}, [(2, 3, 4), (3, 1)], (2, 3, 4), Slab(2, 1, 2), [Slab(2, 1, 2), None]),
        ("mean", {"axis": [1], "keepdims": 0, "exclude": 0}, [(2, 3, 4)], (2, 4), Slab(1, 0, 2), [Slab(2, 0, 2)]),
        ("nn.dense", {"units": 5}, [(2, 3), (5, 3)], (2, 5), Slab(1, 1, 4), [None, Slab(0, 1, 4)]),
        ("nn.dense", {"units": 5}, [(2, 3), (5, 3)], (2, 5), Slab(0, 0, 1), [Slab(0, 0, 1), None]),
    ],
)
def test_needs(
    op: str, attrs: dict[str, Any], args: list[Shape], result: Shape, want: Slab, needs: list[Slab | None]
) -> None:
    assert list(ask(op, attrs, args, result, want).args) == needs


@pytest.mark.parametrize(
    ("op", "attrs", "args", "result", "want"),
    [
        ("nn.softmax", {"axis": -1}, [(2, 4)], (2, 4), Slab(1, 0, 2)),
        ("mean", {"axis": [1], "keepdims": 1, "exclude": 0}, [(2, 3)], (2, 1), Slab(1, 0, 1)),
        ("reshape", {"newshape": [6, 2]}, [(3, 4)], (6, 2), Slab(0, 0, 2)),
        ("nn.global_avg_pool2d", {"layout": "NHWC"}, [(1, 4, 4, 2)], (1, 1, 1, 2), Slab(1, 0, 1)),
        ("nn.depth_to_space", {"layout": "NHWC", "block_size": 2}, [(1, 2, 2, 8)], (1, 4, 4, 2), Slab(1, 0, 1)),
        ("nn.depth_to_space", {"layout": "NHWC", "block_size": 2}, [(1, 2, 2, 8)], (1, 4, 4, 2), Slab(3, 0, 1)),
        ("nn.max_pool2d", {**POOL, "layout": "NCHW4c"}, [(1, 1, 4, 4, 4)], (1, 1, 3, 3, 4), Slab(2, 0, 1)),
        ("strided_slice", {"begin": [3], "end": [0], "strides": [-1], "axes": [0]}, [(4,)], (3,), Slab(0, 0, 1)),
    ],
)
def test_refused(op: str, attrs: dict[str, Any], args: list[Shape], result: Shape, want: Slab) -> None:
    with pytest.raises(NoSplit):
        ask(op, attrs, args, result, want)
