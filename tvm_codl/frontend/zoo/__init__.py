"""Networks by name: ``zoo:NAME``."""

from __future__ import annotations

import difflib

from tvm_codl.errors import UserError
from tvm_codl.frontend.zoo import (
    alexnet,
    bert_base,
    matmul,
    mobilenet_v1,
    mobilenet_v2,
    posenet,
    ppocr,
    resnet18,
    resnet50,
    retinaface,
    small,
    squeezenet,
    style_transfer,
    vgg16,
    yolov2,
)
from tvm_codl.frontend.zoo.entry import ZooEntry

ENTRIES = (
    resnet18.ENTRY,
    resnet50.V1,
    resnet50.V2,
    mobilenet_v1.ENTRY,
    mobilenet_v2.ENTRY,
    squeezenet.ENTRY,
    alexnet.ENTRY,
    vgg16.ENTRY,
    yolov2.ENTRY,
    posenet.ENTRY,
    retinaface.ENTRY,
    style_transfer.ENTRY,
    matmul.ENTRY,
    bert_base.ENTRY,
    ppocr.DETECTION,
    ppocr.DIRECTION,
    ppocr.RECOGNITION,
    small.ENTRY,
)


def entry(name: str) -> ZooEntry:
    """The network called ``name``.  Raises :class:`UserError` with the names there are."""
    by_name = {entry.name: entry for entry in ENTRIES}
    if name in by_name:
        return by_name[name]
    names = ", ".join(f"zoo:{name}" for name in by_name)
    close = difflib.get_close_matches(name, by_name, 1, 0.0)
    raise UserError(f"the zoo has no model {name!r}", f"it has {names}", f"name one of these, e.g. zoo:{close[0]}")
