"""ResNet-18 (He et al. 2016, table 1), for 1×3×224×224 pictures and 1000 classes, with seeded weights."""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import ZooEntry, built
from tvm_codl.frontend.zoo.network import Network

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))


def build() -> onnx.ModelProto:
    """11.69 million parameters, 1.82 G multiply-adds."""
    net = Network("resnet18", seed=18)
    x = net.conv("input", 3, 64, kernel=7, stride=2)
    x = net.add("Relu", net.batch_norm(x, 64))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for outputs, stride in STAGES:
        x = _block(net, x, channels, outputs, stride)
        x = _block(net, x, outputs, outputs, 1)
        channels = outputs
    x = net.add("Flatten", net.add("GlobalAveragePool", x), axis=1)
    return net.finish((1, 3, 224, 224), net.dense(x, channels, 1000), (1, 1000))


def _block(net: Network, x: str, inputs: int, outputs: int, stride: int) -> str:
    y = net.add("Relu", net.batch_norm(net.conv(x, inputs, outputs, 3, stride), outputs))
    # A small gamma keeps the activations of sixteen summed blocks in the range that training would give.
    y = net.batch_norm(net.conv(y, outputs, outputs, 3), outputs, scale=0.5)
    if stride != 1 or inputs != outputs:
        x = net.batch_norm(net.conv(x, inputs, outputs, 1, stride), outputs)
    return net.add("Relu", net.add("Add", y, x))


ENTRY = ZooEntry("resnet18", "ResNet-18, seeded weights", built("resnet18", 1, build))
