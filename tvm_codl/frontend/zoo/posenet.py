"""PoseNet (Papandreou et al. 2018, "PersonLab") with a MobileNetV1 backbone of stride 32, seeded weights.

The heads are those of the published ``posenet_mobilenet_v1_100_257x257_multi_kpt_stripped.tflite``: for 17 key points a
heat map, offsets, and displacements along the 16 edges of the pose's tree, forward and backward, at each of 9×9
places.  3,324,851 parameters: MobileNetV1's 4,231,976 without its classifier, and the heads' 117,875; that file holds
them as floats in 13.3 MB.  CoDL's "PoseNet" is another network, of VGG's convolutions.
"""

from __future__ import annotations

import onnx

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.mobilenet import add_trunk
from tvm_codl.frontend.zoo.network import Network

POINTS, EDGES = 17, 16
HEADS = {"heatmaps": POINTS, "offsets": 2 * POINTS, "forward": 2 * EDGES, "backward": 2 * EDGES}


def build(size: int = 257) -> onnx.ModelProto:
    """``size`` is a multiple of 32, plus 1, so that places lie on the picture's edges."""
    net = Network("posenet", seed=17)
    x, channels = add_trunk(net)
    places = (size - 1) // 32 + 1
    heads = {}
    for name, outputs in HEADS.items():
        y = net.conv(x, channels, outputs, 1, bias=True)
        heads[name] = (net.add("Sigmoid", y) if name == "heatmaps" else y, (1, outputs, places, places))
    return net.finish_all((1, 3, size, size), heads)


ENTRIES = (build_once("posenet", build),)
