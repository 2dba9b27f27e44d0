"""Networks by name: ``zoo:NAME``."""

from __future__ import annotations

import difflib

from tvm_codl.errors import UserError
from tvm_codl.frontend.zoo import (
    bert_base,
    matmul,
    mediapipe,
    mobilenet,
    posenet,
    ppocr,
    resnet,
    retinaface,
    small,
    squeezenet,
    style_transfer,
    vgg,
    yolov2,
)
from tvm_codl.frontend.zoo.entry import ZooEntry

_PICTURES = (resnet, mobilenet, squeezenet, vgg, yolov2, posenet, retinaface, style_transfer)
ENTRIES: tuple[ZooEntry, ...] = tuple(
    entry for family in (*_PICTURES, matmul, bert_base, ppocr, mediapipe, small) for entry in family.ENTRIES
)


def entry(name: str) -> ZooEntry:
    """The network called ``name``.  Raises :class:`UserError` with the names there are."""
    by_name = {entry.name: entry for entry in ENTRIES}
    if name in by_name:
        return by_name[name]
    names = ", ".join(f"zoo:{name}" for name in by_name)
    close = difflib.get_close_matches(name, by_name, 1, 0.0)
    raise UserError(f"the zoo has no model {name!r}", f"it has {names}", f"name one of these, e.g. zoo:{close[0]}")
