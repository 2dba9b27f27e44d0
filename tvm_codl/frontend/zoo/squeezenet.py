"""SqueezeNet 1.0 (Iandola et al. 2016, table 1) for 1×3×224×224 pictures and 1000 classes, with seeded weights.

The table's total is 1,248,424 parameters.  0.82 G multiply-adds, as torchvision lists for ``squeezenet1_0``, whose
poolings round up, as these do.
"""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.network import Network

#: Channels of the squeezing layer, and of each of the two expanding ones; 0 is a pooling.
FIRES = ((16, 64), (16, 64), (32, 128), (0, 0), (32, 128), (48, 192), (48, 192), (64, 256), (0, 0), (64, 256))


def build(size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    net = Network("squeezenet", seed=10)
    weights = net.he_normal((96, 3, 7, 7), 3 * 49)
    x = net.add("Conv", "input", weights, net.bias(96), kernel_shape=[7, 7], strides=[2, 2])
    x = _pool(net, net.add("Relu", x))
    channels = 96
    for squeezed, expanded in FIRES:
        if not squeezed:
            x = _pool(net, x)
            continue
        y = net.add("Relu", net.conv(x, channels, squeezed, 1, bias=True))
        sides = [net.add("Relu", net.conv(y, squeezed, expanded, kernel, bias=True)) for kernel in (1, 3)]
        x, channels = net.add("Concat", *sides, axis=1), 2 * expanded
    x = net.add("Relu", net.conv(x, channels, classes, 1, bias=True))
    return net.finish((1, 3, size, size), net.global_pool(x), (1, classes))


def _pool(net: Network, x: str) -> str:
    return net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)


ENTRIES = (build_once("squeezenet", build),)
