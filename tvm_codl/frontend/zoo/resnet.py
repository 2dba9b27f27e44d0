"""ResNet-18 and ResNet-50 version 1 (He et al. 2016a, table 1), and version 2 (He et al. 2016b, "Identity mappings").

ResNet-18: 11.69 million parameters, 1.82 G multiply-adds.  ResNet-50's version 1 strides in the first 1×1 convolution of a
block: 25,557,032 parameters, 3.86 G (the paper's table says 3.8 G).  Version 2 normalises and rectifies before each
convolution and strides in the 3×3 one, as in the authors' code: 25,549,352 parameters (25.6 million in the list of Keras,
whose convolutions have biases too), 4.1 G.
"""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.network import Network

#: Channels inside a block and ResNet-50's blocks of each stage; its blocks put out four times as many.
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
WIDER = 4
# A small gamma keeps the sums of the blocks in the range that training would give.
SCALE = 0.5


def build_18() -> onnx.ModelProto:
    net = Network("resnet18", seed=18)
    x, channels = net.pool("Max", net.conv_bn("input", 3, 64, 7, 2), 3, 2, 1), 64
    for outputs, _ in STAGES:
        for stride in (1 if outputs == 64 else 2, 1):
            y = net.conv_bn(net.conv_bn(x, channels, outputs, 3, stride), outputs, outputs, 3, scale=SCALE, relu="none")
            if stride == 2:
                x = net.conv_bn(x, channels, outputs, 1, stride, relu="none")
            x, channels = net.add("Relu", net.add("Add", y, x)), outputs
    return net.finish((1, 3, 224, 224), net.dense(net.global_pool(x), channels, 1000), (1, 1000))


def add_stages(net: Network) -> list[tuple[str, int]]:
    """The output and its channels of each stage, at a 4th, 8th, 16th and 32nd of the picture's size."""
    x, channels, stages = net.pool("Max", net.conv_bn("input", 3, 64, 7, 2), 3, 2, 1), 64, []
    for stage, (inner, blocks) in enumerate(STAGES):
        for block in range(blocks):
            stride, outputs = 2 if stage and block == 0 else 1, inner * WIDER
            y = net.conv_bn(net.conv_bn(x, channels, inner, 1, stride), inner, inner, 3)
            y = net.conv_bn(y, inner, outputs, 1, scale=SCALE, relu="none")
            if block == 0:
                x = net.conv_bn(x, channels, outputs, 1, stride, scale=SCALE, relu="none")
            x, channels = net.add("Relu", net.add("Add", y, x)), outputs
        stages.append((x, channels))
    return stages


def build_v1(size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    net = Network("resnet50_v1", seed=50)
    x, channels = add_stages(net)[-1]
    return net.finish((1, 3, size, size), net.dense(net.global_pool(x), channels, classes), (1, classes))


def build_v2(size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    net = Network("resnet50_v2", seed=52)
    x, channels = net.pool("Max", net.conv("input", 3, 64, 7, 2), 3, 2, 1), 64
    for stage, (inner, blocks) in enumerate(STAGES):
        for block in range(blocks):
            stride, outputs = 2 if stage and block == 0 else 1, inner * WIDER
            before = net.add("Relu", net.batch_norm(x, channels, SCALE))
            y = net.conv_bn(net.conv_bn(before, channels, inner, 1), inner, inner, 3, stride)
            y = net.conv(y, inner, outputs, 1)
            if block == 0:
                x = net.conv(before, channels, outputs, 1, stride)
            x, channels = net.add("Add", y, x), outputs
    x = net.global_pool(net.add("Relu", net.batch_norm(x, channels, SCALE)))
    return net.finish((1, 3, size, size), net.dense(x, channels, classes), (1, classes))


ENTRIES = (build_once("resnet18", build_18), build_once("resnet50_v1", build_v1), build_once("resnet50_v2", build_v2))
