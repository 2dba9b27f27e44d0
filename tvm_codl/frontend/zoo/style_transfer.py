"""Fast style transfer (Johnson et al. 2016; layers in table 1 of the supplement) at CoDL's 480×640, seeded weights.

1,677,635 parameters: 1,674,432 in the convolutions, 3 biases in the last, scale and shift of 15 normalisations.
Padding keeps the sizes, as in the shapes that CoDL measured, where the paper pads the picture and lets blocks shrink it.
"""

from __future__ import annotations

import numpy as np
import onnx

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.network import Network

BLOCKS, CHANNELS = 5, 128


def build(height: int = 480, width: int = 640) -> onnx.ModelProto:
    """Pictures in and out have values 0 to 255, or close to that; sizes are multiples of 4."""
    net = Network("style_transfer", seed=7)
    x = net.add("Mul", "input", net.constant(np.float32(1 / 128)))
    for inputs, outputs, kernel, stride in ((3, 32, 9, 1), (32, 64, 3, 2), (64, CHANNELS, 3, 2)):
        x = net.conv_bn(x, inputs, outputs, kernel, stride)
    for _ in range(BLOCKS):
        y = net.conv_bn(net.conv_bn(x, CHANNELS, CHANNELS, 3), CHANNELS, CHANNELS, 3, scale=0.5, relu="none")
        x = net.add("Add", x, y)
    for inputs, outputs in ((CHANNELS, 64), (64, 32)):
        # A kernel of 3 at stride 2 meets each output 9/4 times.
        weights = net.he_normal((inputs, outputs, 3, 3), inputs * 9 // 4)
        x = net.add(
            "ConvTranspose", x, weights, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, output_padding=[1, 1]
        )
        x = net.add("Relu", net.batch_norm(x, outputs))
    x = net.add("Tanh", net.add("Mul", net.conv(x, 32, 3, 9, bias=True), net.constant(np.float32(0.2))))
    x = net.add("Mul", net.add("Add", x, net.constant(np.float32(1))), net.constant(np.float32(127.5)))
    return net.finish((1, 3, height, width), x, (1, 3, height, width))


ENTRIES = (build_once("style_transfer", build),)
