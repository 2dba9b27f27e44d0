from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.unit.report.test_page import NASTY, Outline, page, row
from tvm_codl.errors import UserError
from tvm_codl.report.comparison import compare, differences, read_data
from tvm_codl.report.page import Data, OperatorRow, Page, Total, render
from tvm_codl.report.tables_page import Bar, render_tables


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    return tmp_path


def data(folder: Path, made: Page) -> Data:
    """As a file of the page carries it."""
    file = folder / "page.html"
    file.write_text(render(made), encoding="utf-8")
    return read_data(file)


def moved(number: int, here_ms: float, name: str = "") -> OperatorRow:
    return replace(row(number, name=name), on="cpu", placement="cpu", cpu_share=1.0, here_ms=here_ms)


def test_a_page_carries_what_a_comparison_needs(folder: Path) -> None:
    made = page(row(0), row(1, 0, name=NASTY))
    found = data(folder, made)
    assert (found.title, found.verdict, found.facts, found.totals) == (
        made.title, made.verdict, made.facts, made.totals
    )  # fmt: skip
    for placed, operator in zip(found.operators, made.operators, strict=True):
        assert all(getattr(placed, name) == getattr(operator, name) for name in placed.__struct_fields__)


def test_what_differs_comes_first_where_it_is_most(folder: Path) -> None:
    a = data(folder, page(row(0), row(1), row(2), row(3), row(4)))
    rows = row(0), moved(1, 0.1), moved(2, 0.4), replace(row(3), here_ms=0.05), moved(5, 0.2)
    found = differences(a, data(folder, page(*rows)))
    assert [each.number for each in found] == [2, 5, 4, 3, 1], "0 is the same"
    assert [each.ms for each in found] == pytest.approx([0.3, 0.21, -0.11, -0.05, 0.0])
    assert found[1].a is None and found[2].b is None


def test_the_page_says_both_sides(folder: Path) -> None:
    first = page(row(0), row(1), row(2, name=NASTY))
    slower = (Total("this plan", 2.0, (1.8, 2.4), 1.9), Total("CPU only", 3.0, None, 3.0))
    second = replace(page(row(0), moved(1, 0.4), moved(2, 0.1, NASTY)), totals=slower, verdict="Measured")
    made = compare(data(folder, first), data(folder, second), ("a.html", NASTY))
    assert made.verdict == "Measured: A takes 1.000 ms, B 2.000 ms; A is 2.00 times as fast as B."
    sides, ways, operators = made.tables
    assert [side[2] for side in sides.rows] == [first.verdict, "Measured"]
    assert ways.rows[0] == ("this plan", "1.000 (0.900 to 1.100)", "2.000 (1.800 to 2.400)", "+1.000")
    assert ways.rows[1] == ("CPU only", "–", "3.000 (predicted)", "–")
    assert operators.rows[0][:2] == ("1", "conv2d_1") and operators.rows[0][-1] == "+0.300"
    assert operators.rows[0][2] == Bar("height@4 (direct)", (("cpu", 0.5), ("gpu", 0.5)))
    assert "2 differ" in operators.note and "+0.300 ms" in operators.note
    text = render_tables(made)
    Outline(text)
    assert "<img" not in text and "<script" not in text


def test_times_that_are_not_of_one_kind_are_compared_by_prediction(folder: Path) -> None:
    predicted = replace(page(row(0)), totals=(Total("this plan", 2.0, None, 2.0),), predicted_ms=2.0)
    made = compare(data(folder, page(row(0))), data(folder, predicted), ("a", "b"))
    assert made.verdict.startswith("Predicted: A takes 1.000 ms, B 2.000 ms")
    assert made.tables[1].rows[0][-1] == "–"


def test_the_verdict_says_where_times_overlap_and_phones_differ(folder: Path) -> None:
    other = replace(page(row(0)), totals=(Total("this plan", 1.05, (1.0, 1.2), 1.0),), facts=(("phone", "another"),))
    made = compare(data(folder, page(row(0))), data(folder, other), ("a", "b"))
    assert made.verdict.endswith("; p10 to p90 of the two overlap. The phones are not the same.")


def test_two_pages_that_are_the_same(folder: Path) -> None:
    same = data(folder, page(row(0), row(1)))
    made = compare(same, same, ("a", "b"))
    assert made.tables[2].rows == () and made.tables[2].note.startswith("None of the 2 operators differs")
    assert "placement in A" not in render_tables(made)


@pytest.mark.parametrize("other", [replace(page(row(0)), title="another"), page(row(7))])
def test_pages_of_two_networks_are_refused(other: Page, folder: Path) -> None:
    with pytest.raises(UserError, match="different networks"):
        compare(data(folder, page(row(0))), data(folder, other), ("a", "b"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"cpu_share": 0.5', '"cpu_share": 1.5'),
        ('"cpu_share": 0.5', '"cpu_share": "50%; background: red"'),
        ('"here_ms": 0.1', '"here_ms": NaN'),
        ('"here_ms": 0.1', '"here_ms": 1e999'),
        ('"totals": [', '"totals": [], "all": ['),
        ('"number": 0', '"numbers": 0'),
        ('id="data"', 'id="other"'),
    ],
)
def test_a_file_with_other_data_is_refused(old: str, new: str, folder: Path) -> None:
    text = render(page(row(0)))
    assert old in text
    (folder / "page.html").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError) as raised:
        read_data(folder / "page.html")
    assert raised.value.evidence and raised.value.next == "tvm-codl report MODEL -o PAGE.html"


def test_a_plans_file_becomes_a_page_first(folder: Path) -> None:
    (folder / "plan.json").write_text("{}")
    with pytest.raises(UserError) as raised:
        read_data(folder / "plan.json")
    assert raised.value.next == f"tvm-codl report {folder / 'plan.json'} -o {folder / 'plan.html'}"
