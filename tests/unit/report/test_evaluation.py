from __future__ import annotations

import io
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from tvm_codl.cost.evaluation.metrics import Result, Scatter, metrics
from tvm_codl.report.evaluation import page, picture, table
from tvm_codl.report.tables_page import Bar

SVG = "{http://www.w3.org/2000/svg}"


def scatter(count: int = 20) -> Scatter:
    measured = np.logspace(-2, 1, count)
    predicted = {"learned": (measured * 1.04).tolist(), "a <simple> one": (measured * 1.3).tolist()}
    return Scatter("phone & co", measured.tolist(), predicted)


def printed(results: list[Result], width: int) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(table(results, "held out"))
    return text.getvalue()


def test_the_table_has_a_row_a_result_and_one_for_each_stated_uncertainty() -> None:
    found = metrics(np.array([1.0, 2.0]), np.array([1.02, 2.5]), np.array([0.1, 0.1]))
    plain = metrics(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    words = printed([Result("phone", "conv", "learned", found), Result("phone", "conv", "FLOPs", plain)], 160)
    assert "50.0" in words and "100.0" in words and words.startswith("held out")
    assert words.count("learned ") == 2 and words.count("FLOPs ") == 1
    assert "interval" not in printed([Result("phone", "conv", "FLOPs", plain)], 160)


def test_the_tables_fit_a_narrow_terminal_without_cutting() -> None:
    right = metrics(np.ones(12345), np.ones(12345), np.ones(12345))
    classes = ("conv2d pieces, median of all repeats", "nn.contrib_depthwise_conv2d_transpose")
    results = [Result(f"a phone {p}", c, "CoDL linear", right) for p in ("cpu", "gpu") for c in classes]
    text = printed(results, 80)
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    assert text.count("12345 ") == 4 and text.count("100.0 ") == 4 * 6 and "a phone gpu" in text


def paths(svg: str, words: str) -> list[ElementTree.Element]:
    """Those whose attributes hold the words."""
    return [path for path in ElementTree.fromstring(svg).iter(f"{SVG}path") if words in " ".join(path.attrib.values())]


@pytest.mark.parametrize("scatters", [[], [scatter()], [scatter(), scatter(1)]])
def test_the_picture_is_xml_with_a_point_an_operator(scatters: list[Scatter]) -> None:
    made = picture(scatters, "times < 10 ms & more")
    points = [path for path in paths(made, "translate(") if path.attrib.get("opacity") == "0.5"]
    assert len(points) == sum(len(one.measured_ms) for one in scatters)
    assert len(paths(made, "line mark")) == sum(len(one.predicted_ms) for one in scatters)
    assert "times &lt; 10 ms &amp; more" in made
    for point in points:
        x, y = (float(place) for place in point.attrib["transform"][len("translate(") : -1].split(","))
        assert 0 <= x <= 300 and 0 <= y <= 300


def test_points_within_ten_per_cent_lie_in_the_band() -> None:
    made = picture([scatter()])
    (band,) = paths(made, "area mark")
    left_low, right_low, right_high, left_high = (
        tuple(map(float, pair.split(","))) for pair in band.attrib["d"].strip("MZ").split("L")
    )

    def edge(one: tuple[float, ...], two: tuple[float, ...], x: float) -> float:
        return one[1] + (two[1] - one[1]) * (x - one[0]) / (two[0] - one[0])

    low, high = sorted(((left_low, right_low), (left_high, right_high)), key=lambda side: -side[0][1])
    points = [path for path in paths(made, "translate(") if path.attrib.get("opacity") == "0.5"]
    assert points
    for point in points:
        x, y = (float(place) for place in point.attrib["transform"][len("translate(") : -1].split(","))
        assert edge(*high, x) - 0.2 <= y <= edge(*low, x) + 0.2


def test_the_page_has_the_tables_and_the_picture_where_there_is_one() -> None:
    found = metrics(np.array([1.0, 2.0]), np.array([1.02, 2.5]), np.array([0.1, 0.1]))
    results = [Result(device, "conv", "learned", found) for device in ("phone cpu", "phone gpu")]
    made = page(results, [scatter()], "held out")
    assert len(made.tables) == 4 and made.verdict == "held out"
    assert [cell for cell in made.tables[0].rows[0] if isinstance(cell, Bar)] == [Bar("", (("after", 0.5),))]
    assert made.picture.startswith("<svg") and "learned, a <simple> one" in made.picture_words
    assert page(results, [], "held out").picture == ""
