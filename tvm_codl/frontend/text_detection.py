"""PP-OCR's text detection: from a picture to the network's input, from its probability map to boxes."""

from __future__ import annotations

from pathlib import Path

import cv2
import msgspec
import numpy as np

# PP-OCRv4's own preprocessing (ImageNet's statistics, on blue-green-red pixels) and post-processing constants.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
THRESHOLD, BOX_THRESHOLD, UNCLIP, MIN_SIDE = 0.3, 0.6, 1.5, 3.0


class Box(msgspec.Struct, frozen=True):
    """A text line: its four corners (x, y) in pixels, clockwise from the top left one, and its mean probability."""

    corners: tuple[tuple[float, float], ...]
    score: float

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        xs, ys = zip(*self.corners, strict=True)
        return min(xs), min(ys), max(xs), max(ys)


def to_input(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """``picture`` (rows, columns, 3; blue-green-red bytes) as a float32 tensor (1, 3, height, width)."""
    resized = cv2.resize(picture, (width, height)) if picture.shape[:2] != (height, width) else picture
    normal = (resized.astype(np.float32) / 255.0 - MEAN) / DEVIATION
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[np.newaxis], dtype=np.float32)


def find_boxes(probability: np.ndarray, picture_shape: tuple[int, ...]) -> list[Box]:
    """The text lines in ``probability`` (1, 1, height, width), in pixels of the picture of shape (rows, columns, …).

    Differentiable binarization's decoding, Liao et al. 2020, section 3.6: regions above a threshold, each the smallest
    rectangle around it, widened by D = A·r / L (area, ratio, perimeter).  Top to bottom, left to right.
    """
    heat = probability[0, 0]
    contours, _ = cv2.findContours((heat > THRESHOLD).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    scale = np.array([picture_shape[1] / heat.shape[1], picture_shape[0] / heat.shape[0]])
    boxes = []
    for contour in contours:
        centre, (w, h), angle = cv2.minAreaRect(contour)
        if min(w, h) < MIN_SIDE:
            continue
        score = _mean_inside(heat, cv2.boxPoints((centre, (w, h), angle)))
        if score < BOX_THRESHOLD:
            continue
        margin = w * h * UNCLIP / (2 * (w + h))
        corners = cv2.boxPoints((centre, (w + 2 * margin, h + 2 * margin), angle)) * scale
        corners = np.clip(corners, 0, [picture_shape[1] - 1, picture_shape[0] - 1])
        boxes.append(Box(_clockwise(corners), round(score, 4)))
    return sorted(boxes, key=lambda box: (round(box.bounds[1] / 10), box.bounds[0]))


def overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    """Intersection over union of two upright rectangles (left, top, right, bottom)."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return width * height / (area - width * height)


def draw_boxes(picture: np.ndarray, boxes: list[Box], path: Path) -> None:
    """Writes ``picture`` with ``boxes`` drawn into it as a PNG file."""
    drawn = picture.copy()
    for box in boxes:
        cv2.polylines(drawn, [np.array(box.corners, np.int32)], True, (0, 0, 220), 1, cv2.LINE_AA)
    cv2.imwrite(str(path), drawn)


def _mean_inside(heat: np.ndarray, corners: np.ndarray) -> float:
    mask = np.zeros(heat.shape, np.uint8)
    cv2.fillPoly(mask, [corners.astype(np.int32)], 1)
    return float(cv2.mean(heat.astype(np.float32), mask)[0])


def _clockwise(corners: np.ndarray) -> tuple[tuple[float, float], ...]:
    """From the corner nearest to the origin on; ``boxPoints`` gives them clockwise already."""
    first = int(np.argmin(corners.sum(axis=1)))
    return tuple((round(float(x), 1), round(float(y), 1)) for x, y in np.roll(corners, -first, axis=0))
