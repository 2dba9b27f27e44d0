"""AlexNet in the one-tower form (Krizhevsky 2014, "One weird trick", footnote 1) for 1×3×224×224 pictures, seeded weights.

61,100,840 parameters and 0.71 G multiply-adds, as torchvision lists for its ``alexnet``, the same network.
"""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import ZooEntry, build_once
from tvm_codl.frontend.zoo.network import Network

#: Output channels, kernel and stride of each convolution, and whether a pooling follows.
LAYERS = ((64, 11, 4, True), (192, 5, 1, True), (384, 3, 1, False), (256, 3, 1, False), (256, 3, 1, True))


def build(classes: int = 1000) -> onnx.ModelProto:
    net = Network("alexnet", seed=12)
    x, channels = "input", 3
    for outputs, kernel, stride, pooled in LAYERS:
        weights = net.he_normal((outputs, channels, kernel, kernel), channels * kernel * kernel)
        pad = 2 if kernel == 11 else kernel // 2
        x = net.add(
            "Conv", x, weights, net.bias(outputs), kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4
        )
        x, channels = net.add("Relu", x), outputs
        if pooled:
            x = net.pool("Max", x, 3, 2)
    x, features = net.add("Flatten", x, axis=1), channels * 6 * 6
    for outputs in (4096, 4096):
        x, features = net.add("Relu", net.dense(x, features, outputs)), outputs
    return net.finish((1, 3, 224, 224), net.dense(x, features, classes), (1, classes))


ENTRY = ZooEntry("alexnet", "AlexNet, one tower, seeded weights", build_once("alexnet", 1, build))
