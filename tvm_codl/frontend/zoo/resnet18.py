"""ResNet-18 (He et al. 2016, table 1), for 1×3×224×224 pictures and 1000 classes, with seeded weights."""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import ZooEntry, build_once
from tvm_codl.frontend.zoo.network import Network

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))


def build() -> onnx.ModelProto:
    """11.69 million parameters, 1.82 G multiply-adds."""
    net = Network("resnet18", seed=18)
    x, channels = net.pool("Max", net.conv_bn("input", 3, 64, 7, 2), 3, 2, 1), 64
    for outputs, stride in STAGES:
        x = _block(net, x, channels, outputs, stride)
        x = _block(net, x, outputs, outputs, 1)
        channels = outputs
    return net.finish((1, 3, 224, 224), net.dense(net.global_pool(x), channels, 1000), (1, 1000))


def _block(net: Network, x: str, inputs: int, outputs: int, stride: int) -> str:
    y = net.conv_bn(x, inputs, outputs, 3, stride)
    # A small gamma keeps the activations of sixteen summed blocks in the range that training would give.
    y = net.conv_bn(y, outputs, outputs, 3, scale=0.5, relu="none")
    if stride != 1 or inputs != outputs:
        x = net.conv_bn(x, inputs, outputs, 1, stride, relu="none")
    return net.add("Relu", net.add("Add", y, x))


ENTRY = ZooEntry("resnet18", "ResNet-18, seeded weights", build_once("resnet18", 1, build))
