"""One case for each operator class that has a split rule: draws shapes and attributes, builds a Relay network."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from tvm import relay

Draw = Callable[[st.SearchStrategy[Any]], Any]
Case = Callable[[Draw], relay.Function]
CASES: dict[str, Case] = {}


def case(build: Case) -> Case:
    CASES[build.__name__] = build
    return build


def weight(*shape: int, seed: int = 7) -> relay.Constant:
    return relay.const(np.random.default_rng(seed + prod(shape)).standard_normal(shape).astype("float32"))


def number(draw: Draw, lo: int, hi: int) -> int:
    return int(draw(st.integers(lo, hi)))


def image(draw: Draw, layout: str, channels: int, rows: tuple[int, int] = (4, 11)) -> relay.Var:
    extents = {"N": number(draw, 1, 2), "C": channels, "H": number(draw, *rows), "W": number(draw, 4, 7)}
    return relay.var("x", shape=[extents[letter] for letter in layout])


def any_layout(draw: Draw) -> str:
    return str(draw(st.sampled_from(["NHWC", "NCHW"])))


def function(body: relay.Expr) -> relay.Function:
    return relay.Function(relay.analysis.free_vars(body), body)


def _permuted(shape: dict[str, int], layout: str) -> list[int]:
    return [shape[letter] for letter in layout]


def _conv(draw: Draw, layout: str, inputs: int, outputs: int, groups: int, kernel_layout: str) -> relay.Expr:
    x = image(draw, layout, inputs, rows=(5, 12))
    kernel = [number(draw, 1, 4), number(draw, 1, 3)]
    dilation = [number(draw, 1, 2), number(draw, 1, 2)]
    strides = [number(draw, 1, 3), number(draw, 1, 2)]
    padding = [number(draw, 0, 2) for _ in range(4)]
    shape = {letter: int(extent) for letter, extent in zip(layout, x.type_annotation.shape, strict=True)}
    for dim, letter in enumerate("HW"):
        assume(shape[letter] + padding[dim] + padding[dim + 2] >= (kernel[dim] - 1) * dilation[dim] + 1)
    by_group = kernel_layout == "HWOI"
    sizes = {
        "O": groups if by_group else outputs,
        "I": outputs // groups if by_group else inputs // groups,
        "H": kernel[0],
        "W": kernel[1],
    }
    return relay.nn.conv2d(
        x,
        weight(*_permuted(sizes, kernel_layout)),
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
        channels=outputs,
        kernel_size=kernel,
        data_layout=layout,
        kernel_layout=kernel_layout,
    )


def _biased(draw: Draw, y: relay.Expr, channels: int, layout: str) -> relay.Expr:
    """Element-wise operators as a network has them behind an anchor."""
    tail = draw(st.sampled_from(["none", "bias_relu", "bias_add", "scaled"]))
    per_channel = [channels if letter == "C" else 1 for letter in layout]
    if tail == "bias_relu":
        return relay.nn.relu(relay.add(y, weight(*per_channel)))
    if tail == "bias_add":
        return relay.clip(relay.nn.bias_add(y, weight(channels), axis=layout.index("C")), -1.0, 6.0)
    if tail == "scaled":
        return relay.multiply(relay.sigmoid(y), relay.const(0.5))
    return y


@case
def conv2d(draw: Draw) -> relay.Function:
    layout = any_layout(draw)
    outputs = number(draw, 2, 5)
    y = _conv(draw, layout, number(draw, 1, 4), outputs, 1, "HWIO" if layout == "NHWC" else "OIHW")
    return function(_biased(draw, y, outputs, layout))


@case
def conv2d_grouped(draw: Draw) -> relay.Function:
    layout = any_layout(draw)
    groups = number(draw, 2, 3)
    outputs = groups * number(draw, 1, 3)
    inputs = groups * number(draw, 2, 3)
    y = _conv(draw, layout, inputs, outputs, groups, "HWIO" if layout == "NHWC" else "OIHW")
    return function(_biased(draw, y, outputs, layout))


@case
def conv2d_depthwise(draw: Draw) -> relay.Function:
    layout = any_layout(draw)
    channels = number(draw, 2, 5)
    y = _conv(draw, layout, channels, channels, channels, "HWOI" if layout == "NHWC" else "OIHW")
    return function(_biased(draw, y, channels, layout))


@case
def conv2d_depthwise_multiplied(draw: Draw) -> relay.Function:
    channels = number(draw, 2, 4)
    return function(_conv(draw, "NHWC", channels, 2 * channels, channels, "HWOI"))


@case
def conv2d_residual(draw: Draw) -> relay.Function:
    layout, channels = any_layout(draw), number(draw, 2, 4)
    x = image(draw, layout, channels)
    depthwise = draw(st.booleans())
    sizes = {"O": channels, "I": 1 if depthwise else channels, "H": 3, "W": 3}
    kernel_layout = "OIHW" if layout == "NCHW" else "HWOI" if depthwise else "HWIO"
    y = relay.nn.conv2d(
        x,
        weight(*_permuted(sizes, kernel_layout)),
        padding=(1, 1, 1, 1),
        groups=channels if depthwise else 1,
        channels=channels,
        kernel_size=(3, 3),
        data_layout=layout,
        kernel_layout=kernel_layout,
    )
    return function(relay.nn.relu(relay.add(y, x)))


@case
def conv2d_transpose(draw: Draw) -> relay.Function:
    groups = draw(st.sampled_from([1, 1, 2]))
    inputs, outputs = groups * number(draw, 1, 2), groups * number(draw, 1, 3)
    x = image(draw, "NCHW", inputs, rows=(3, 7))
    kernel = [number(draw, 1, 4), number(draw, 1, 4)]
    strides = [number(draw, 1, 5), number(draw, 1, 5)]
    padding = [number(draw, 0, kernel[dim % 2] - 1) for dim in range(4)]
    extra = [number(draw, 0, strides[dim] - 1) for dim in range(2)]
    y = relay.nn.conv2d_transpose(
        x,
        weight(inputs, outputs // groups, *kernel),
        strides=strides,
        padding=padding,
        output_padding=extra,
        groups=groups,
        channels=outputs,
        kernel_size=kernel,
        data_layout="NCHW",
        kernel_layout="IOHW",
    )
    return function(_biased(draw, y, outputs, "NCHW"))


@case
def dense(draw: Draw) -> relay.Function:
    shape = [number(draw, 1, 5), number(draw, 1, 4)]
    units = number(draw, 2, 6)
    y = relay.nn.dense(relay.var("x", shape=shape), weight(units, shape[-1]), units=units)
    return function(relay.nn.relu(relay.nn.bias_add(y, weight(units), axis=-1)))


@case
def matmul(draw: Draw) -> relay.Function:
    rows, depth, columns = (number(draw, 2, 5) for _ in range(3))
    a, b = draw(st.booleans()), draw(st.booleans())
    x = relay.var("x", shape=(depth, rows) if a else (rows, depth))
    return function(
        relay.nn.matmul(x, weight(*((columns, depth) if b else (depth, columns))), transpose_a=a, transpose_b=b)
    )


@case
def batch_matmul(draw: Draw) -> relay.Function:
    batch, rows, depth, columns = (number(draw, 2, 5) for _ in range(4))
    a, b = draw(st.booleans()), draw(st.booleans())
    x = relay.var("x", shape=(batch, depth, rows) if a else (batch, rows, depth))
    others = draw(st.sampled_from([1, batch]))
    shape = (others, columns, depth) if b else (others, depth, columns)
    y = relay.var("y", shape=shape) if draw(st.booleans()) else weight(*shape)
    return function(relay.nn.batch_matmul(x, y, transpose_a=a, transpose_b=b))


def _pool(draw: Draw, op: Any, **more: Any) -> relay.Function:
    layout = any_layout(draw)
    x = image(draw, layout, number(draw, 1, 3), rows=(5, 12))
    size = [number(draw, 1, 4), number(draw, 1, 3)]
    padding = [number(draw, 0, size[dim % 2] - 1) for dim in range(4)]
    return function(
        op(
            x,
            pool_size=size,
            strides=[number(draw, 1, 3), number(draw, 1, 3)],
            padding=padding,
            dilation=[number(draw, 1, 2), 1],
            layout=layout,
            ceil_mode=draw(st.booleans()),
            **more,
        )
    )


@case
def max_pool2d(draw: Draw) -> relay.Function:
    return _pool(draw, relay.nn.max_pool2d)


@case
def avg_pool2d(draw: Draw) -> relay.Function:
    return _pool(draw, relay.nn.avg_pool2d, count_include_pad=draw(st.booleans()))


@case
def global_pool2d(draw: Draw) -> relay.Function:
    layout = any_layout(draw)
    op = draw(st.sampled_from([relay.nn.global_avg_pool2d, relay.nn.global_max_pool2d]))
    return function(op(image(draw, layout, number(draw, 2, 4)), layout=layout))


@case
def adaptive_pool2d(draw: Draw) -> relay.Function:
    layout = any_layout(draw)
    op = draw(st.sampled_from([relay.nn.adaptive_avg_pool2d, relay.nn.adaptive_max_pool2d]))
    size = draw(st.sampled_from([(1, 1), (2, 2), (3, 2)]))
    return function(op(image(draw, layout, number(draw, 2, 4), rows=(6, 6)), size, layout=layout))


@case
def resize2d(draw: Draw) -> relay.Function:
    layout = any_layout(draw)
    rows = number(draw, 4, 12)
    x = image(draw, layout, number(draw, 1, 3), rows=(rows, rows))
    scaled = draw(st.sampled_from([rows * 2, rows * 3, rows * 3 // 2, rows // 2, rows * 2 - 1, 3 * rows - 2, rows + 3]))
    mode = draw(st.sampled_from(["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]))
    method = draw(st.sampled_from(["nearest_neighbor", "linear", "cubic"]))
    rounding = draw(st.sampled_from(["floor", "round"])) if method == "nearest_neighbor" else ""
    return function(relay.image.resize2d(x, (scaled, number(draw, 4, 9)), None, layout, method, mode, rounding))


@case
def upsampling(draw: Draw) -> relay.Function:
    layout = any_layout(draw)
    x = image(draw, layout, number(draw, 1, 3))
    method = draw(st.sampled_from(["nearest_neighbor", "bilinear"]))
    return function(relay.nn.upsampling(x, number(draw, 1, 3), 2, layout=layout, method=method))


@case
def elementwise_unary(draw: Draw) -> relay.Function:
    x = image(draw, "NHWC", number(draw, 1, 4))
    op = draw(
        st.sampled_from(
            [
                relay.nn.relu,
                relay.sigmoid,
                relay.tanh,
                relay.exp,
                lambda v: relay.nn.leaky_relu(v, 0.1),
                lambda v: relay.clip(v, -0.5, 0.5),
                lambda v: relay.cast(v, "int32"),
                lambda v: relay.multiply(v, relay.clip(relay.add(v, relay.const(3.0)), 0.0, 6.0)),
            ]
        )
    )
    return function(op(x))


@case
def elementwise_broadcast(draw: Draw) -> relay.Function:
    shape = [number(draw, 1, 4) for _ in range(number(draw, 1, 4))]
    keep = [draw(st.booleans()) for _ in shape]
    other = [extent if kept else 1 for extent, kept in zip(shape, keep, strict=True)][number(draw, 0, len(shape) - 1) :]
    x = relay.var("x", shape=shape)
    y = weight(*other) if draw(st.booleans()) else relay.var("y", shape=other)
    op = draw(st.sampled_from([relay.add, relay.multiply, relay.subtract, relay.maximum]))
    return function(op(relay.nn.relu(x), y) if draw(st.booleans()) else op(y, relay.abs(x)))


@case
def where(draw: Draw) -> relay.Function:
    shape = [number(draw, 2, 4) for _ in range(3)]
    x, y = relay.var("x", shape=shape), relay.var("y", shape=[1, *shape[1:]])
    return function(relay.where(relay.greater(x, relay.const(0.0)), x, y))


@case
def prelu(draw: Draw) -> relay.Function:
    channels = number(draw, 2, 4)
    return function(relay.nn.prelu(image(draw, "NCHW", channels), weight(channels), axis=1))


@case
def concatenate(draw: Draw) -> relay.Function:
    rank = number(draw, 2, 4)
    axis = number(draw, 0, rank - 1)
    shape = [number(draw, 1, 3) for _ in range(rank)]
    parts: list[relay.Expr] = []
    for index in range(number(draw, 2, 4)):
        own = [number(draw, 1, 3) if k == axis else extent for k, extent in enumerate(shape)]
        part = relay.var(f"x{index}", shape=own)
        parts.append(relay.nn.relu(part) if draw(st.booleans()) else part)
    return function(relay.concatenate(parts, axis=axis - draw(st.sampled_from([0, rank]))))


@case
def stack(draw: Draw) -> relay.Function:
    shape = [number(draw, 2, 3) for _ in range(2)]
    parts = [relay.var(f"x{index}", shape=shape) for index in range(2)]
    return function(relay.stack(parts, axis=number(draw, 0, 2)))


@case
def pad(draw: Draw) -> relay.Function:
    x = image(draw, any_layout(draw), number(draw, 2, 3))
    widths = [[0, 0], *([number(draw, 0, 3 if axis == 1 else 1) for _ in range(2)] for axis in (1, 2, 3))]
    mode = draw(st.sampled_from(["constant", "edge", "reflect"]))
    rows = [int(extent) for extent in x.type_annotation.shape]
    assume(mode != "reflect" or all(max(width) < extent for width, extent in zip(widths, rows, strict=True)))
    return function(relay.nn.pad(x, widths, 0.5, mode))


@case
def softmax(draw: Draw) -> relay.Function:
    shape = [number(draw, 2, 4) for _ in range(number(draw, 2, 4))]
    op = draw(st.sampled_from([relay.nn.softmax, relay.nn.log_softmax]))
    # Relay's x86 log_softmax takes the last axis of a matrix only.
    x = relay.var("x", shape=shape[:2] if op is relay.nn.log_softmax else shape)
    return function(op(x, axis=-1 if op is relay.nn.log_softmax else number(draw, -1, len(shape) - 1)))


@case
def layer_norm(draw: Draw) -> relay.Function:
    shape = [number(draw, 2, 4) for _ in range(3)]
    return function(relay.nn.layer_norm(relay.var("x", shape=shape), weight(shape[-1]), weight(shape[-1], seed=9)))


@case
def instance_norm(draw: Draw) -> relay.Function:
    channels = number(draw, 2, 4)
    return function(relay.nn.instance_norm(image(draw, "NCHW", channels), weight(channels), weight(channels, seed=9)))


@case
def group_norm(draw: Draw) -> relay.Function:
    groups = number(draw, 2, 3)
    channels = groups * 2
    x = image(draw, "NCHW", channels)
    return function(relay.nn.group_norm(x, weight(channels), weight(channels, seed=9), groups))


@case
def batch_norm(draw: Draw) -> relay.Function:
    channels = number(draw, 2, 4)
    x = image(draw, "NHWC", channels)
    scale, shift, mean = (weight(channels, seed=seed) for seed in (1, 2, 3))
    y = relay.nn.batch_norm(relay.nn.relu(x), scale, shift, mean, relay.abs(weight(channels, seed=4)), axis=3)[0]
    return function(y)


@case
def reduction(draw: Draw) -> relay.Function:
    shape = [number(draw, 2, 4) for _ in range(number(draw, 2, 4))]
    axes = draw(st.lists(st.integers(-1, len(shape) - 2), min_size=1, max_size=2, unique=True))
    axes = [axis % len(shape) for axis in axes]
    op = draw(st.sampled_from([relay.mean, relay.sum, relay.max, relay.min, relay.variance, relay.argmax]))
    exclude = draw(st.booleans()) and op is not relay.argmax
    return function(op(relay.var("x", shape=shape), axes, draw(st.booleans()), exclude))


@case
def transpose(draw: Draw) -> relay.Function:
    shape = [number(draw, 1, 4) for _ in range(number(draw, 2, 4))]
    axes = draw(st.one_of(st.none(), st.permutations(range(len(shape)))))
    return function(relay.nn.relu(relay.transpose(relay.var("x", shape=shape), axes)))


@case
def layout_transform(draw: Draw) -> relay.Function:
    source, target = draw(st.sampled_from([("NCHW", "NHWC"), ("NHWC", "NCHW")]))
    return function(relay.layout_transform(image(draw, source, number(draw, 2, 3)), source, target))


@case
def strided_slice(draw: Draw) -> relay.Function:
    shape = [number(draw, 3, 8) for _ in range(3)]
    begin = [number(draw, 0, extent - 2) for extent in shape]
    end = [number(draw, first + 1, extent) for first, extent in zip(begin, shape, strict=True)]
    strides = [number(draw, 1, 3) for _ in shape]
    x = relay.var("x", shape=shape)
    form = draw(st.sampled_from(["plain", "axes", "negative", "short"]))
    if form == "axes":
        return function(relay.strided_slice(x, begin[1:], end[1:], strides[1:], axes=[1, 2]))
    if form == "negative":
        begin = [first - extent for first, extent in zip(begin, shape, strict=True)]
        return function(relay.strided_slice(x, begin, [2**31 - 1] * 3, strides))
    if form == "short":
        return function(relay.strided_slice(x, begin[:2], end[:2], strides[:1]))
    return function(relay.strided_slice(x, begin, end, strides))


@case
def split(draw: Draw) -> relay.Function:
    parts = number(draw, 2, 3)
    x = relay.nn.relu(relay.var("x", shape=(number(draw, 2, 4), parts * 2, 3)))
    pieces = relay.split(x, parts, axis=1)
    return function(relay.multiply(relay.sigmoid(pieces[0]), pieces[parts - 1]))


@case
def squeeze_expand(draw: Draw) -> relay.Function:
    shape = [number(draw, 2, 4), 1, number(draw, 2, 4), 1]
    x = relay.var("x", shape=shape)
    squeezed = relay.squeeze(x, draw(st.sampled_from([None, [1], [3], [-1, 1]])))
    if draw(st.booleans()):
        return function(squeezed)
    return function(relay.expand_dims(squeezed, draw(st.sampled_from([0, 1, -1])), number(draw, 1, 2)))


@case
def reshape(draw: Draw) -> relay.Function:
    a, b, c = (number(draw, 2, 4) for _ in range(3))
    x = relay.var("x", shape=(a, b, c, 4))
    return function(relay.reshape(x, draw(st.sampled_from([(a, b * c, 4), (a, -1), (0, 0, c * 2, 2), (a, b, -1)]))))


@case
def batch_flatten(draw: Draw) -> relay.Function:
    shape = (number(draw, 1, 3), 1, 1, number(draw, 2, 5)) if draw(st.booleans()) else (number(draw, 2, 3), 2, 2)
    return function(relay.nn.batch_flatten(relay.var("x", shape=shape)))


@case
def depth_to_space(draw: Draw) -> relay.Function:
    layout = any_layout(draw)
    block = number(draw, 2, 3)
    x = image(draw, layout, block * block * number(draw, 1, 2))
    return function(relay.nn.depth_to_space(x, block, layout, draw(st.sampled_from(["DCR", "CRD"]))))


@case
def space_to_depth(draw: Draw) -> relay.Function:
    layout = any_layout(draw)
    shape = {"N": number(draw, 1, 2), "C": 2, "H": 2 * number(draw, 2, 4), "W": 4}
    return function(relay.nn.space_to_depth(relay.var("x", shape=[shape[letter] for letter in layout]), 2, layout))


@case
def broadcast_to(draw: Draw) -> relay.Function:
    x = relay.var("x", shape=(number(draw, 1, 3), 1, 3))
    return function(relay.broadcast_to(x, (2, int(x.type_annotation.shape[0]), 4, 3)))


@case
def lrn(draw: Draw) -> relay.Function:
    return function(relay.nn.lrn(image(draw, "NCHW", number(draw, 2, 4)), 3, 1))
