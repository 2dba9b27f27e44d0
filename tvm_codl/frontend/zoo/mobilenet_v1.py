"""MobileNetV1 (Howard et al. 2017, table 1) of width 1, for 1×3×224×224 pictures and 1000 classes, seeded weights.

Table 8 of the paper: 4.2 million parameters (4,231,976 counted one by one), 569 million multiply-adds.
"""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import ZooEntry, build_once
from tvm_codl.frontend.zoo.network import Network

#: Output channels and stride of each depthwise separable block.
BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1), (512, 1), (512, 1),
    (1024, 2), (1024, 1),
)  # fmt: skip


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


def build(size: int = 224, width: float = 1.0, classes: int = 1000) -> onnx.ModelProto:
    net = Network("mobilenet_v1", seed=1)
    x, channels = add_trunk(net, width)
    return net.finish((1, 3, size, size), net.dense(net.global_pool(x), channels, classes), (1, classes))


ENTRY = ZooEntry("mobilenet_v1", "MobileNetV1, width 1, seeded weights", build_once("mobilenet_v1", 1, build))
