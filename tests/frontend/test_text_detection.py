from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.picture import demo_picture
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.frontend.text_detection import draw_boxes, find_boxes, overlap, to_input
from tvm_codl.relay.model import LoadedModel


def heat(*rectangles: tuple[int, int, int, int], level: float = 0.9) -> np.ndarray:
    """A probability map (1, 1, 100, 200) with ``level`` in the rectangles (left, top, right, bottom)."""
    value = np.zeros((1, 1, 100, 200), np.float32)
    for left, top, right, bottom in rectangles:
        value[0, 0, top : bottom + 1, left : right + 1] = level
    return value


def test_a_region_is_widened_by_area_times_ratio_over_perimeter() -> None:
    (box,) = find_boxes(heat((20, 40, 80, 60)), (100, 200, 3))
    margin = 60 * 20 * 1.5 / (2 * (60 + 20))
    np.testing.assert_allclose(box.bounds, (20 - margin, 40 - margin, 80 + margin, 60 + margin), atol=0.2)
    assert box.score == pytest.approx(0.9, abs=1e-3)


def test_boxes_come_in_reading_order_and_in_the_pictures_pixels() -> None:
    boxes = find_boxes(heat((120, 20, 160, 30), (20, 20, 60, 30), (20, 70, 60, 80)), (200, 400, 3))
    assert [round(b.bounds[0] / 2) < 100 for b in boxes] == [True, False, True]
    assert boxes[0].bounds[3] < 100 < boxes[2].bounds[1]


@pytest.mark.parametrize("what", [heat(), heat((20, 40, 80, 60), level=0.5), heat((20, 40, 80, 41))])
def test_nothing_weak_or_thin_is_found(what: np.ndarray) -> None:
    assert find_boxes(what, (100, 200, 3)) == []


def test_rotated_text_gives_a_rotated_box() -> None:
    value = heat()
    corners = cv2.boxPoints(((100, 50), (80, 12), 30))
    cv2.fillPoly(value[0, 0], [corners.astype(np.int32)], 0.9)
    (box,) = find_boxes(value, (100, 200, 3))
    (x0, y0), (x1, y1) = box.corners[0], box.corners[1]
    assert abs(x1 - x0) > 5 and abs(y1 - y0) > 5


def test_overlap() -> None:
    assert overlap((0, 0, 2, 2), (0, 0, 2, 2)) == 1.0
    assert overlap((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert overlap((0, 0, 1, 1), (2, 2, 3, 3)) == 0.0


@pytest.fixture(scope="module")
def detector() -> LoadedModel:
    return load_model("zoo:ppocr_det")


@pytest.mark.parametrize("side", [320, 480])
def test_the_networks_boxes_are_the_demo_pictures_words(side: int, tmp_path: Path, detector: LoadedModel) -> None:
    picture, words = demo_picture(side, side)
    (answer,) = reference_outputs(detector, {"x": to_input(picture, side, side)})
    boxes = find_boxes(answer, picture.shape)
    assert len(boxes) == len(words)
    for word in words:
        assert max(overlap(word.bounds, box.bounds) for box in boxes) > 0.5, word
    draw_boxes(picture, boxes, tmp_path / "b.png")
    assert cv2.imread(str(tmp_path / "b.png")).shape == picture.shape
