"""Operators with windows, drawn by hypothesis."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from tests.unit.graph.graphs import POOL, conv2d, node, single
from tvm_codl.graph.opgraph import Operator, OpGraph


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Operator, OpGraph]:
    """Strides, dilation, padding and groups of all kinds, depthwise among them."""
    rows, width, blocks = draw(st.integers(4, 24)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    kernel, groups = draw(st.sampled_from([1, 2, 3, 5])), draw(st.sampled_from([1, 2, 4]))
    stride, dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    top, bottom = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    assume(rows + top + bottom >= (kernel - 1) * dilation + 1)
    layout = "HWOI" if draw(st.booleans()) and groups > 1 else "HWIO"
    inputs = groups if layout == "HWOI" else groups * width
    attrs = {"strides": [stride, 1], "dilation": [dilation, 1], "padding": [top, 0, bottom, 0], "groups": groups}
    return conv2d(rows, inputs, groups * blocks, kernel, kernel_layout=layout, **attrs)


@st.composite
def poolings(draw: st.DrawFn) -> tuple[Operator, OpGraph]:
    rows, size, stride = draw(st.integers(3, 20)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    pad, how = draw(st.integers(0, 1)), draw(st.sampled_from(["max", "avg"]))
    assume(pad < size <= rows + 2 * pad)
    attrs = {**POOL, "pool_size": [size, size], "strides": [stride, stride], "padding": [pad] * 4}
    out, across = (rows + 2 * pad - size) // stride + 1, (8 + 2 * pad - size) // stride + 1
    return single([(1, rows, 8, 12)], [], node(f"nn.{how}_pool2d", attrs, "i0", (1, out, across, 12)))
