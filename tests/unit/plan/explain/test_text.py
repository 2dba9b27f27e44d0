from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tvm_codl.plan.explain.text import WIDTH, milliseconds, shorten, table_lines, wrapped


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [
        ("conv2d_add_12", 13, "conv2d_add_12"),
        ("conv2d_add_relu_12", 13, "conv2d…elu_12"),
        ("conv2d_add_relu_12345", 8, "co…12345"),
        ("a_name_without_any", 7, "a_n…any"),
    ],
)
def test_a_short_name_keeps_its_number(name: str, width: int, short: str) -> None:
    assert shorten(name, width) == short


@given(st.lists(st.text(st.characters(categories=["L", "N"]), max_size=120), min_size=1), st.integers(1, 50))
def test_lines_fit_whatever_the_names(names: list[str], width: int) -> None:
    lines = table_lines(("#", "operator", "words"), [("1", name, "x" * width) for name in names], left=("operator",))
    assert len(lines) == 1 + len(names)
    assert all(cell_len(line) <= WIDTH and line.endswith("  " + "x" * width) for line in lines[1:])


def test_long_times_have_fewer_decimals_and_differences_a_sign() -> None:
    times = (None, 0.0, 9.8765, 98.765, -1234.56)
    assert [milliseconds(ms) for ms in times] == ["", "0.000", "9.877", "98.77", "-1234.6"]
    assert milliseconds(1.0, "+") == "+1.000"


def test_commands_are_not_broken_at_their_hyphens() -> None:
    (first, second) = wrapped("x" * 75 + " tvm-codl plan", rest="  ")
    assert (first, second) == ("x" * 75, "  tvm-codl plan")
