"""PP-OCRv4 text detection, the trained network that the package ``rapidocr-onnxruntime`` carries (Apache-2.0)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from tvm_codl.errors import UserError
from tvm_codl.frontend.model import Shape
from tvm_codl.frontend.zoo.entry import ZooEntry

PACKAGE, FILE = "rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx"


def path() -> Path:
    """The file as installed.  Raises :class:`UserError` where the package is missing."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (found := Path(folder, FILE)).is_file():
            return found
    raise UserError(
        "zoo:ppocr_det is not installed", f"no {PACKAGE}/{FILE}", "pip install --no-deps rapidocr-onnxruntime==1.4.4"
    )


def sample(shape: Shape) -> np.ndarray:
    """The demo picture: on noise the network answers nothing but values near zero, whose relative error says nothing."""
    from tvm_codl.frontend.picture import demo_picture
    from tvm_codl.frontend.text_detection import to_input

    _, _, height, width = shape
    value = to_input(demo_picture(height, width)[0], height, width)
    return np.repeat(value, shape[0], axis=0)


ENTRY = ZooEntry("ppocr_det", "PP-OCRv4 text detection, trained", path, {"x": (1, 3, 320, 320)}, sample)
