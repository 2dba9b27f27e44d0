from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.report.lanes import lanes


@st.composite
def networks(draw: Any) -> list[list[int]]:
    """For each row the rows before it whose results it takes."""
    rows: list[list[int]] = []
    for row in range(draw(st.integers(0, 30))):
        rows.append(draw(st.lists(st.integers(0, row - 1), max_size=3)) if row else [])
    return rows


@settings(max_examples=examples(200))
@given(networks())
def test_an_edge_meets_no_operator_on_its_way_down(sources: list[list[int]]) -> None:
    places = lanes(sources)
    assert len(places) == len(sources)
    for row, taken in enumerate(sources):
        for source in taken:
            assert all(places[between] != places[source] for between in range(source + 1, row))


@settings(max_examples=examples(200))
@given(networks())
def test_no_lane_stays_empty(sources: list[list[int]]) -> None:
    places = lanes(sources)
    assert set(places) == set(range(len(set(places))))


def test_a_chain_stays_in_one_lane_and_a_branch_takes_another() -> None:
    assert lanes([[], [0], [1], [2]]) == [0, 0, 0, 0]
    assert lanes([[], [0], [1], [0, 2]]) == [0, 1, 1, 0]
