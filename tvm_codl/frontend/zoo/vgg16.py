"""VGG-16 (Simonyan and Zisserman 2015, table 1, D) for 1×3×224×224 pictures and 1000 classes, with seeded weights.

Table 2 of the paper: 138 million parameters (138,357,544 counted one by one); 15.5 G multiply-adds.
"""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import ZooEntry, build_once
from tvm_codl.frontend.zoo.network import Network

#: Channels and number of the 3×3 convolutions between two poolings.
STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def build(size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    net = Network("vgg16", seed=16)
    x, channels = "input", 3
    for outputs, layers in STAGES:
        for _ in range(layers):
            x = net.add("Relu", net.conv(x, channels, outputs, 3, bias=True))
            channels = outputs
        x = net.pool("Max", x, 2, 2)
    x, features = net.add("Flatten", x, axis=1), channels * (size // 32) ** 2
    for outputs in (4096, 4096):
        x, features = net.add("Relu", net.dense(x, features, outputs)), outputs
    return net.finish((1, 3, size, size), net.dense(x, features, classes), (1, classes))


ENTRY = ZooEntry("vgg16", "VGG-16, seeded weights", build_once("vgg16", 1, build))
