"""MobileNetV2 (Sandler et al. 2018, table 2) of width 1, for 1×3×224×224 pictures and 1000 classes, seeded weights.

Table 4 of the paper: 3.4 million parameters (3,504,872 counted one by one), 300 million multiply-adds.
"""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import ZooEntry, build_once
from tvm_codl.frontend.zoo.network import Network

#: Of each row of the table: expansion, output channels, blocks, stride of the first block.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
GRANULE = 8


def build(size: int = 224, width: float = 1.0, classes: int = 1000) -> onnx.ModelProto:
    """``width`` multiplies all channels but the last ones, which only grow (section 4 of the paper)."""
    net = Network("mobilenet_v2", seed=2)
    channels = _wide(32, width)
    x = net.conv_bn("input", 3, channels, 3, 2, relu="relu6")
    for expansion, outputs, blocks, stride in STAGES:
        for block in range(blocks):
            wide = _wide(outputs, width)
            x = _inverted_residual(net, x, channels, wide, expansion, stride if block == 0 else 1)
            channels = wide
    last = _wide(1280, max(width, 1.0))
    x = net.global_pool(net.conv_bn(x, channels, last, 1, relu="relu6"))
    return net.finish((1, 3, size, size), net.dense(x, last, classes), (1, classes))


def _wide(channels: int, width: float) -> int:
    """A multiple of 8 that is not a tenth below the wanted number, as the authors' code has it."""
    rounded = max(GRANULE, int(channels * width + GRANULE / 2) // GRANULE * GRANULE)
    return rounded if rounded >= 0.9 * channels * width else rounded + GRANULE


def _inverted_residual(net: Network, x: str, inputs: int, outputs: int, expansion: int, stride: int) -> str:
    hidden = inputs * expansion
    y = net.conv_bn(x, inputs, hidden, 1, relu="relu6") if expansion > 1 else x
    y = net.conv_bn(y, hidden, hidden, 3, stride, groups=hidden, relu="relu6")
    # Nothing is rectified here, so half of He's variance keeps the values where they are.
    y = net.conv_bn(y, hidden, outputs, 1, scale=0.7, relu="none")
    return net.add("Add", x, y) if stride == 1 and inputs == outputs else y


ENTRY = ZooEntry("mobilenet_v2", "MobileNetV2, width 1, seeded weights", build_once("mobilenet_v2", 1, build))
