"""AlexNet and VGG-16: convolutions and poolings in a row, then three dense layers; 1000 classes, seeded weights.

AlexNet in the one-tower form (Krizhevsky 2014, "One weird trick", footnote 1): 61,100,840 parameters and 0.71 G
multiply-adds, as torchvision lists for its ``alexnet``, the same network.  VGG-16 (Simonyan and Zisserman 2015, table 1, D):
138 million parameters in table 2 (138,357,544 counted one by one), 15.5 G multiply-adds.
"""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.network import Network

#: AlexNet: output channels, kernel and stride of each convolution, and whether a pooling follows.
LAYERS = ((64, 11, 4, True), (192, 5, 1, True), (384, 3, 1, False), (256, 3, 1, False), (256, 3, 1, True))
#: VGG-16: channels and number of the 3×3 convolutions between two poolings.
STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def build_alexnet(classes: int = 1000) -> onnx.ModelProto:
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
    return _classify(net, x, 224, channels * 6 * 6, classes)


def build_vgg16(size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    net = Network("vgg16", seed=16)
    x, channels = "input", 3
    for outputs, layers in STAGES:
        for _ in range(layers):
            x = net.add("Relu", net.conv(x, channels, outputs, 3, bias=True))
            channels = outputs
        x = net.pool("Max", x, 2, 2)
    return _classify(net, x, size, channels * (size // 32) ** 2, classes)


def _classify(net: Network, x: str, size: int, features: int, classes: int) -> onnx.ModelProto:
    x = net.add("Flatten", x, axis=1)
    for outputs in (4096, 4096):
        x, features = net.add("Relu", net.dense(x, features, outputs)), outputs
    return net.finish((1, 3, size, size), net.dense(x, features, classes), (1, classes))


ENTRIES = (build_once("alexnet", build_alexnet), build_once("vgg16", build_vgg16))
