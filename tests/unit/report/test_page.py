from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from tvm_codl.report.page import Bar, Choice, OperatorRow, Page, Total, render
from tvm_codl.report.timeline import Event

NASTY = "</script><img src=x onerror=alert(1)>"


def row(number: int, *sources: int, name: str = "") -> OperatorRow:
    return OperatorRow(
        number, name or f"conv2d_{number}", "conv2d", "1 × 8 × 8 × 4 float32", 2_000_000, sources, "split", "height@4",
        0.5, 0.2, None, 0.1, 0.01, 0.09, 0.02, (), "measured", "split 4/8 height", "direct",
        (Choice("cpu", 1.25), Choice(NASTY, 1.5)),
    )  # fmt: skip


def page(*rows: OperatorRow) -> Page:
    return Page(
        "net", "Predicted: 1.00 ms", (("phone", "a phone"),), (Total("this plan", 1.0, (0.9, 1.1), 1.05),), rows, 1.0, 1.1,
        (Bar("cpu", 0, 0.0, 0.25), Bar("gpu", 0, 0.5, 0.9)), 0.9, (0.1, 0.2), "tvm-codl plan zoo:net", "by runs on the phone",
    )  # fmt: skip


class Outline(HTMLParser):
    """The attributes of every element; raises where an element is not closed."""

    EMPTY = frozenset(("meta", "link", "input", "img"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_for_no_other_file() -> None:
    text = render(page(row(0), row(1, 0), row(2, 0, 1)))
    outline = Outline(text)
    addresses = [value for _, found in outline.found for name, value in found.items() if name in ("src", "href")]
    assert addresses == ["data:,"]
    assert "default-src 'none'" in text
    assert not re.search(r"@import|url\(|fetch\(", text)
    labels = [found["id"] for tag, found in outline.found if found.get("role") == "option"]
    assert labels == ["o0", "o1", "o2"]


def test_names_from_a_model_are_no_markup() -> None:
    text = render(page(row(0, name=NASTY)))
    assert "<img" not in text
    assert text.count("<script") == 2


@pytest.mark.parametrize("rows", [(), (row(0),)])
def test_a_page_of_few_operators(rows: tuple[OperatorRow, ...]) -> None:
    Outline(render(replace(page(*rows), bars=())))


def test_idle_time_is_what_is_left_of_the_run() -> None:
    events = (
        Event("f", "cpu", "kernel", 100, 300),
        Event("wait", "cpu", "wait", 300, 900),
        Event("g", "gpu", "kernel", 200, 1100),
    )
    of = replace(page(row(0)), events=events)
    assert of.idle_ms == pytest.approx({"cpu": 0.65, "gpu": 0.5})
    assert of.run_ms == (0.1, 1.1)
    assert of.run_idle_ms == pytest.approx({"cpu": 0.8, "gpu": 0.1})
    assert "A run on the phone" in render(of)


def test_what_is_lost_comes_first_where_it_is_most() -> None:
    rows = [replace(row(number), lost_ms=lost) for number, lost in enumerate((0.1, -0.1, 0.4, 0.0))]
    assert [each.number for each in page(*rows).lost] == [2, 0]


def test_a_placement_that_gains_is_never_without_a_reason() -> None:
    better = replace(row(1), choices=(Choice("cpu", 0.9), Choice("gpu", 1.2)))
    assert "1 operator has another placement that gains" in render(page(row(0), better))
    assert "chosen by runs on the phone" in render(page(better))
    assert "that gains" not in render(page(row(0)))
