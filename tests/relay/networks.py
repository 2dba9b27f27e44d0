"""Small networks with the shapes of real ones: each has what makes partitioning hard somewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relay

NETWORKS: dict[str, Callable[[], tvm.IRModule]] = {}


def network(build: Callable[[], relay.Expr]) -> Callable[[], relay.Expr]:
    def module() -> tvm.IRModule:
        body = build()
        return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))

    NETWORKS[build.__name__] = module
    return build


class Weights:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)

    def __call__(self, *shape: int) -> relay.Constant:
        return relay.const(self.rng.standard_normal(shape).astype("float32") * 0.3)


def conv(x: relay.Expr, w: Weights, inputs: int, outputs: int, k: int = 3, s: int = 1, groups: int = 1) -> relay.Expr:
    """A convolution in NHWC with padding that keeps the size, and its bias."""
    depthwise = groups == inputs == outputs > 1
    shape = (k, k, inputs, 1) if depthwise else (k, k, inputs // groups, outputs)
    y = relay.nn.conv2d(
        x,
        w(*shape),
        strides=(s, s),
        padding=(k // 2,) * 4,
        groups=groups,
        channels=outputs,
        kernel_size=(k, k),
        data_layout="NHWC",
        kernel_layout="HWOI" if depthwise else "HWIO",
    )
    return relay.add(y, w(outputs))


def image(channels: int = 3, rows: int = 10) -> relay.Var:
    return relay.var("image", shape=(1, rows, 8, channels))


@network
def residual_block() -> relay.Expr:
    w, x = Weights(), image(4)
    y = relay.nn.relu(conv(x, w, 4, 6, s=2))
    y = conv(y, w, 6, 6)
    return relay.nn.relu(relay.add(y, conv(x, w, 4, 6, k=1, s=2)))


@network
def inverted_residual() -> relay.Expr:
    """Expansion, depthwise, squeeze-and-excitation, projection, shortcut."""
    w, x = Weights(), image(4)
    y = relay.clip(conv(x, w, 4, 8, k=1), 0.0, 6.0)
    y = relay.clip(conv(y, w, 8, 8, groups=8), 0.0, 6.0)
    gate = relay.nn.global_avg_pool2d(y, layout="NHWC")
    gate = relay.sigmoid(conv(relay.nn.relu(conv(gate, w, 8, 2, k=1)), w, 2, 8, k=1))
    return relay.add(conv(relay.multiply(y, gate), w, 8, 4, k=1), x)


@network
def feature_pyramid() -> relay.Expr:
    """Two scales, upsampled and concatenated; both are outputs too."""
    w, x = Weights(), image(4, rows=8)
    fine = relay.nn.relu(conv(x, w, 4, 4))
    coarse = relay.nn.relu(conv(relay.nn.max_pool2d(fine, (2, 2), strides=(2, 2), layout="NHWC"), w, 4, 6))
    nearest: dict[str, Any] = {"method": "nearest_neighbor", "rounding_method": "floor"}
    up = relay.image.resize2d(coarse, (8, 8), layout="NHWC", coordinate_transformation_mode="asymmetric", **nearest)
    joined = conv(relay.concatenate([up, fine], axis=3), w, 10, 3)
    smooth = relay.image.resize2d(joined, (16, 16), layout="NHWC", method="linear")
    return relay.Tuple([joined, smooth])


@network
def classifier() -> relay.Expr:
    """Pooling, flattening, a dense layer and softmax behind a convolution."""
    w, x = Weights(), image(3)
    y = relay.nn.relu(conv(x, w, 3, 6, s=2))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y, layout="NHWC"))
    return relay.nn.softmax(relay.nn.bias_add(relay.nn.dense(y, w(10, 6), units=10), w(10)))


@network
def two_inputs_two_heads() -> relay.Expr:
    """A nested tuple of outputs, one of them an input of the network, one used inside as well."""
    w, x = Weights(), image(3)
    other = relay.var("other", shape=(1, 10, 8, 4))
    y = relay.nn.relu(relay.add(conv(x, w, 3, 4), other))
    return relay.Tuple([y, relay.Tuple([conv(y, w, 4, 2), other]), relay.sigmoid(conv(y, w, 4, 3, k=1))])


@network
def transposed_head() -> relay.Expr:
    """Layouts change in the middle, as they do around a transposed convolution."""
    w, x = Weights(), image(3)
    y = relay.layout_transform(relay.nn.relu(conv(x, w, 3, 4)), "NHWC", "NCHW")
    y = relay.nn.conv2d_transpose(
        y, w(4, 3, 2, 2), strides=(2, 2), channels=3, kernel_size=(2, 2), data_layout="NCHW", kernel_layout="IOHW"
    )
    return relay.sigmoid(relay.nn.bias_add(y, w(3)))


@network
def shuffle_block() -> relay.Expr:
    """Channels are split, one half worked on, and joined again; a grouped convolution follows."""
    w, x = Weights(), image(4)
    halves = relay.split(relay.nn.relu(conv(x, w, 4, 6)), 2, axis=3)
    y = relay.concatenate([conv(halves[1], w, 3, 3, groups=3), halves[0]], axis=3)
    return conv(y, w, 6, 4, groups=2)


@network
def attention() -> relay.Expr:
    """Matrix products, softmax between them and a normalisation behind."""
    w, x = Weights(), relay.var("tokens", shape=(6, 8))

    def heads(y: relay.Expr, axes: tuple[int, ...]) -> relay.Expr:
        return relay.transpose(relay.reshape(y, (6, 2, 4)), axes)

    q, k, v = (relay.nn.dense(x, w(8, 8), units=8) for _ in range(3))
    scores = relay.nn.batch_matmul(heads(q, (1, 0, 2)), heads(k, (1, 0, 2)))
    mixed = relay.nn.batch_matmul(relay.nn.softmax(scores), heads(v, (1, 2, 0)))
    y = relay.add(relay.reshape(relay.transpose(mixed, (1, 0, 2)), (6, 8)), x)
    return relay.nn.layer_norm(y, w(8), w(8))


@network
def with_opaque_operators() -> relay.Expr:
    """Operators without a split rule, one of them with two outputs, among others that have one."""
    w, x = Weights(), relay.var("rows", shape=(4, 6))
    y = relay.nn.relu(relay.nn.dense(x, w(8, 6), units=8))
    values, indices = relay.topk(y, k=3, ret_type="both")
    return relay.Tuple([relay.cumsum(values, axis=1), indices, relay.reverse(y, axis=1)])


@network
def embedding() -> relay.Expr:
    """Rows of a table by 64-bit numbers, negative ones from its end; 64-bit constants beside them."""
    w, ids = Weights(), relay.var("ids", shape=(1, 6), dtype="int64")
    wrapped = relay.where(relay.less(ids, relay.const(0, "int64")), relay.add(ids, relay.const(9, "int64")), ids)
    rows = relay.take(w(9, 8), relay.reshape(wrapped, (6,)), axis=0)
    places = relay.add(relay.reshape(ids, (6,)), relay.const(np.arange(6), "int64"))
    return relay.Tuple([relay.nn.relu(relay.nn.dense(rows, w(8, 8), units=8)), places])
