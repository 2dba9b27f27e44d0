"""A picture with words at known places, drawn here."""

from __future__ import annotations

import cv2
import msgspec
import numpy as np

SIDE = 320  # the size that WORDS is laid out for
# (text, left, baseline, font scale, darkness of the ink)
WORDS = (
    ("both processors", 24, 60, 1.0, 20),
    ("work at once", 60, 130, 1.1, 60),
    ("CPU", 30, 210, 1.6, 10),
    ("GPU", 190, 210, 1.6, 10),
    ("one answer", 70, 285, 1.0, 40),
)
FONT = cv2.FONT_HERSHEY_SIMPLEX


class Word(msgspec.Struct, frozen=True):
    """A text that stands in the picture, and the rectangle (left, top, right, bottom) that it fills."""

    text: str
    bounds: tuple[float, float, float, float]


def demo_picture(height: int = SIDE, width: int = SIDE) -> tuple[np.ndarray, list[Word]]:
    """A picture (height, width, 3), blue-green-red bytes, and the words in it.  The same on every call."""
    across, down = width / SIDE, height / SIDE
    scale = min(across, down)
    rows = np.linspace(250, 205, height)[:, np.newaxis]
    columns = np.linspace(0, -25, width)[np.newaxis, :]
    noise = np.random.default_rng(1).normal(0, 3, (height, width))
    paper = np.clip(rows + columns + noise, 0, 255)
    picture = np.repeat(paper[:, :, np.newaxis], 3, axis=2).astype(np.uint8)
    words = []
    for text, left, baseline, size, ink in WORDS:
        x, y = round(left * across), round(baseline * down)
        thickness = max(1, round(2 * scale * size))
        (w, h), below = cv2.getTextSize(text, FONT, size * scale, thickness)
        cv2.putText(picture, text, (x, y), FONT, size * scale, (ink, ink // 2, ink), thickness, cv2.LINE_AA)
        bottom = y + (below if set("gjpqy") & set(text) else 0)
        words.append(Word(text, (float(x), float(y - h), float(x + w), float(bottom))))
    return picture, words
