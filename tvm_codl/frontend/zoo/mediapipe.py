"""MediaPipe's networks for faces, hands and people, trained, as phones run them: TFLite files of the wheel ``mediapipe``
(Apache-2.0) with float16 weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import cv2
import numpy as np

from tvm_codl.errors import UserError
from tvm_codl.frontend.zoo.entry import ZooEntry
from tvm_codl.graph.opgraph import Shape

PACKAGE = "mediapipe"


def person(height: int, width: int) -> np.ndarray:
    """A drawn head and shoulders (height, width, 3), red-green-blue bytes.  Noise is nobody: answers are near zero."""
    picture = np.full((height, width, 3), (120, 150, 180), np.uint8)
    x, y, skin, dark = width // 2, height * 2 // 5, (224, 172, 140), (60, 40, 30)

    def oval(at: tuple[int, int], across: float, down: float, colour: tuple[int, int, int]) -> None:
        cv2.ellipse(picture, at, (int(across * width), int(down * height)), 0, 0, 360, colour, -1, cv2.LINE_AA)

    oval((x, height), 0.36, 0.3, (40, 60, 110))
    oval((x, y + height // 4), 0.08, 0.15, skin)
    oval((x, y - height // 16), 0.2, 0.25, dark)
    oval((x, y), 0.17, 0.23, skin)
    for side in (-1, 1):
        oval((x + side * width // 14, y - height // 20), 0.035, 0.018, (250, 250, 250))
        oval((x + side * width // 14, y - height // 20), 0.015, 0.016, dark)
        oval((x + side * width // 14, y - height // 11), 0.045, 0.008, dark)
    oval((x, y + height // 30), 0.018, 0.04, (200, 140, 110))
    oval((x, y + height // 8), 0.06, 0.018, (170, 70, 70))
    return picture


def _entry(name: str, file: str, lowest: float = 0.0) -> ZooEntry:
    """One of the package's networks, for pictures of ``lowest`` … 1; ``path`` raises :class:`UserError` if it is missing."""

    def path() -> Path:
        spec = importlib.util.find_spec(PACKAGE)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (model := Path(folder, "modules", f"{file}.tflite")).is_file():
                return model
        evidence = f"no {PACKAGE}/modules/{file}.tflite"
        raise UserError(f"zoo:{name} is not installed", evidence, "pip install --no-deps mediapipe==0.10.14")

    def sample(shape: Shape) -> np.ndarray:
        batch, height, width, _ = shape
        value = person(height, width)[None].astype(np.float32) / 255 * (1 - lowest) + lowest
        return np.repeat(value, batch, axis=0)

    return ZooEntry(name, path, sample=sample)


ENTRIES = (
    _entry("face_detection", "face_detection/face_detection_short_range", -1.0),
    _entry("face_landmark", "face_landmark/face_landmark"),
    _entry("hand_landmark", "hand_landmark/hand_landmark_lite"),
    _entry("palm_detection", "palm_detection/palm_detection_lite"),
    _entry("selfie_segmentation", "selfie_segmentation/selfie_segmentation"),
)
