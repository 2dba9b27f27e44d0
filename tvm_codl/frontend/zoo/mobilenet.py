"""MobileNet, version 1 (Howard et al. 2017, table 1) and version 2 (Sandler et al. 2018, table 2), seeded weights.

At width 1, for 1×3×224×224 pictures and 1000 classes.  Table 8 of the first paper: 4.2 million parameters (4,231,976
counted one by one), 569 million multiply-adds.  Table 4 of the second: 3.4 million (3,504,872), 300 million.
"""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.network import Network

#: Version 1: output channels and stride of each depthwise separable block.
BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1), (512, 1), (512, 1),
    (1024, 2), (1024, 1),
)  # fmt: skip
#: Version 2: of each row of the table: expansion, output channels, blocks, stride of the first block.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
GRANULE = 8


def add_trunk(net: Network, width: float = 1.0) -> tuple[str, int]:
    """The convolutions, from ``input`` to a 32nd of its size; with the channels there."""
    channels = int(32 * width)
    x = net.conv_bn("input", 3, channels, 3, 2, relu="relu6")
    for outputs, stride in BLOCKS:
        wide = int(outputs * width)
        x = net.conv_bn(x, channels, channels, 3, stride, groups=channels, relu="relu6")
        x = net.conv_bn(x, channels, wide, 1, relu="relu6")
        channels = wide
    return x, channels


def build_v1(size: int = 224, width: float = 1.0, classes: int = 1000) -> onnx.ModelProto:
    net = Network("mobilenet_v1", seed=1)
    x, channels = add_trunk(net, width)
    return net.finish((1, 3, size, size), net.dense(net.global_pool(x), channels, classes), (1, classes))


def build_v2(size: int = 224, width: float = 1.0, classes: int = 1000) -> onnx.ModelProto:
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


ENTRIES = (build_once("mobilenet_v1", build_v1), build_once("mobilenet_v2", build_v2))
