"""YOLOv2 (Redmon and Farhadi 2017, "YOLO9000", section 2 and table 6) for COCO's 80 classes, seeded weights.

The layers are those of the authors' ``yolov2.cfg``; its weight file, ``yolov2.weights``, has 203,934,260 bytes: a header
of 16 and 50,983,561 floats, which are 50,962,889 learned parameters and the statistics of the batch normalisations.
The authors' page gives 62.94 billion operations at 608×608, two to a multiply-add; at 416×416 that is 29.46 billion.
The network that CoDL measured has the same backbone, a wider passthrough (1536 channels) and VOC's 125 outputs.
"""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.network import Network

#: Darknet-19's stages without its classifier; odd layers are 3×3 to these channels, even ones 1×1 to half as many.
#: A pooling stands between two stages.
STAGES = ((32, 1), (64, 1), (128, 3), (256, 3), (512, 5), (1024, 5))
ANCHORS, CLASSES = 5, 80


def build(size: int = 416) -> onnx.ModelProto:
    """``size`` is a multiple of 32; the output has 5 anchors of 5 + 80 values at each of (size/32)² places."""
    net = Network("yolov2", seed=9000)
    x, channels, fine = "input", 3, ""
    for stage, (outputs, layers) in enumerate(STAGES):
        if stage:
            fine, x = x, net.pool("Max", x, 2, 2)
        for layer in range(layers):
            wide, kernel = (outputs, 3) if layer % 2 == 0 else (outputs // 2, 1)
            x = net.conv_bn(x, channels, wide, kernel, relu="leaky")
            channels = wide
    for _ in range(2):
        x = net.conv_bn(x, 1024, 1024, 3, relu="leaky")
    # The passthrough layer: 26×26×64 values become 13×13×256.
    passed = net.add("SpaceToDepth", net.conv_bn(fine, 512, 64, 1, relu="leaky"), blocksize=2)
    x = net.conv_bn(net.add("Concat", passed, x, axis=1), 256 + 1024, 1024, 3, relu="leaky")
    outputs = ANCHORS * (5 + CLASSES)
    x = net.conv(x, 1024, outputs, 1, bias=True)
    return net.finish((1, 3, size, size), x, (1, outputs, size // 32, size // 32))


ENTRIES = (build_once("yolov2", build),)
