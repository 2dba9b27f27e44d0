"""A network for 1×3×32×32 pictures with every basic kind of operator, for end-to-end tests."""

from __future__ import annotations

import numpy as np
import onnx

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.network import Network


def build() -> onnx.ModelProto:
    """Convolutions (plain, depthwise, 1×1, transposed), pools, a residual, a concatenation, a resize, dense, softmax."""
    net = Network("small", seed=5)
    x = net.conv_bn("input", 3, 16, 3)
    half = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = net.conv_bn(half, 16, 16, 3, groups=16)
    y = net.add("Add", net.conv(y, 16, 16, 1, bias=True), half)
    quarter = net.add("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2])
    quarter = net.add("Relu", net.conv(quarter, 16, 32, 3, bias=True))
    resized = net.add(
        "Resize", quarter, "", net.weight(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    weights = net.he_normal((32, 16, 2, 2), 32)
    spread = net.add("ConvTranspose", quarter, weights, kernel_shape=[2, 2], strides=[2, 2])
    z = net.add("Concat", y, resized, spread, axis=1)
    z = net.add("Relu", net.conv(z, 64, 32, 3, bias=True))
    z = net.dense(net.global_pool(z), 32, 10)
    return net.finish((1, 3, 32, 32), net.add("Softmax", z, axis=1), (1, 10))


ENTRIES = (build_once("small", build),)
