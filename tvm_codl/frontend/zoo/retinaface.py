"""RetinaFace (Deng et al. 2020, section 3.2) on ResNet-50 at 640×640: five pyramid levels, context modules, seeded weights.

Layers have the shapes that CoDL measured: 256 channels in the pyramid, 3×3 heads, three anchors at each place; the
context module is SSH's (Najibi et al. 2017, figure 3).  The paper counts no parameters.  Here there are ResNet-50's
23,508,032 without its classifier, 3,346,432 in the pyramid, and 664,368 in each level's module and heads: 30,176,304.
"""

from __future__ import annotations

import numpy as np
import onnx

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.network import Network
from tvm_codl.frontend.zoo.resnet import add_stages

CHANNELS, ANCHORS = 256, 3
#: Values of each anchor: face or not, box, and the x and y of five landmarks.
HEADS = {"classes": 2, "boxes": 4, "landmarks": 10}


def build(size: int = 640) -> onnx.ModelProto:
    """``size`` is a multiple of 64.  Outputs hold one row for each anchor of all levels, the finest first."""
    net = Network("retinaface", seed=640)
    levels = _pyramid(net, add_stages(net))
    heads: dict[str, list[str]] = {name: [] for name in HEADS}
    places = 0
    for index, level in enumerate(levels):
        x = _context(net, level)
        places += (size // (4 << index)) ** 2
        for name, values in HEADS.items():
            y = net.add("Transpose", net.conv(x, CHANNELS, ANCHORS * values, 3, bias=True), perm=[0, 2, 3, 1])
            heads[name].append(net.add("Reshape", y, net.constant(np.array([1, -1, values], np.int64))))
    joined = {name: net.add("Concat", *parts, axis=1) for name, parts in heads.items()}
    joined["classes"] = net.add("Softmax", joined["classes"], axis=-1)
    rows = places * ANCHORS
    return net.finish_all((1, 3, size, size), {n: (y, (1, rows, HEADS[n])) for n, y in joined.items()})


def _pyramid(net: Network, stages: list[tuple[str, int]]) -> list[str]:
    """Levels of a 4th, 8th, 16th, 32nd and 64th of the picture's size; each but the last adds the one above it."""
    x, channels = stages[-1]
    above = net.conv_bn(x, channels, CHANNELS, 1)
    levels = [above]
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    for x, channels in reversed(stages[:-1]):
        side = net.conv_bn(x, channels, CHANNELS, 1)
        wide = net.add(
            "Resize", above, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )  # fmt: skip
        above = net.conv_bn(net.add("Add", side, wide), CHANNELS, CHANNELS, 3)
        levels.insert(0, above)
    return [*levels, net.conv_bn(levels[-1], CHANNELS, CHANNELS, 3, 2)]


def _context(net: Network, x: str) -> str:
    """Three fields of view side by side, of 3, 5 and 7 pixels, by 3×3 convolutions."""
    near = net.conv_bn(x, CHANNELS, CHANNELS // 2, 3, relu="none")
    quarter = CHANNELS // 4
    shared = net.conv_bn(x, CHANNELS, quarter, 3)
    middle = net.conv_bn(shared, quarter, quarter, 3, relu="none")
    far = net.conv_bn(net.conv_bn(shared, quarter, quarter, 3), quarter, quarter, 3, relu="none")
    return net.add("Relu", net.add("Concat", near, middle, far, axis=1))


ENTRIES = (build_once("retinaface", build),)
