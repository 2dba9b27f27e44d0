from __future__ import annotations

import io
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from tvm_codl.cost.evaluation.metrics import Result, Scatter, metrics
from tvm_codl.report.evaluation import picture, table

SVG = "{http://www.w3.org/2000/svg}"


def scatter(count: int = 20) -> Scatter:
    measured = np.logspace(-2, 1, count)
    predicted = {"learned": (measured * 1.04).tolist(), "a <simple> one": (measured * 1.3).tolist()}
    return Scatter("phone & co", measured.tolist(), predicted)


def test_the_table_has_a_row_a_result() -> None:
    found = metrics(np.array([1.0, 2.0]), np.array([1.02, 2.5]), np.array([0.1, 0.1]))
    plain = metrics(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    made = table([Result("phone", "conv", "learned", found), Result("phone", "conv", "FLOPs", plain)], "held out")
    text = io.StringIO()
    Console(file=text, width=160).print(made)
    words = text.getvalue()
    assert "50.0 %" in words and "100.0 %" in words and "held out" in words
    assert made.row_count == 2


@pytest.mark.parametrize("scatters", [[], [scatter()], [scatter(), scatter(1)]])
def test_the_picture_is_xml_with_a_point_an_operator(scatters: list[Scatter]) -> None:
    root = ElementTree.fromstring(picture(scatters, "times < 10 ms & more"))
    circles = root.findall(f".//{SVG}circle")
    assert len(circles) == sum(len(one.measured_ms) for one in scatters)
    lines = root.findall(f".//{SVG}polyline")
    assert len(lines) == sum(len(one.predicted_ms) for one in scatters)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height


def test_points_within_ten_per_cent_lie_in_the_band() -> None:
    root = ElementTree.fromstring(picture([scatter()]))
    corners = [tuple(map(float, pair.split(","))) for pair in root.find(f".//{SVG}polygon").attrib["points"].split()]  # type: ignore[union-attr]
    _, low0, low1, _, high1, high0 = corners

    def edge(one: tuple[float, ...], two: tuple[float, ...], x: float) -> float:
        return one[1] + (two[1] - one[1]) * (x - one[0]) / (two[0] - one[0])

    for circle in root.findall(f".//{SVG}circle"):
        x, y = float(circle.attrib["cx"]), float(circle.attrib["cy"])
        assert edge(high0, high1, x) - 0.2 <= y <= edge(low0, low1, x) + 0.2
