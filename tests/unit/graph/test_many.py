"""Rules are written for one cut; asked for many at once they give the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.graph.alike import check_alike
from tests.unit.graph.cases import convolutions, poolings
from tests.unit.graph.graphs import node, single
from tvm_codl.graph.many import Differ, Many, in_groups, lower, upper
from tvm_codl.graph.opgraph import Operator, OpGraph


def many(*values: int) -> Many:
    return np.array(values, dtype=np.int64).view(Many)


def test_truth() -> None:
    assert many(1, 2, 3) and not many(0, 0) and not many()
    with pytest.raises(Differ) as differ:
        bool(many(0, 4, 5) > 3)
    assert differ.value.yes.tolist() == [False, True, True]


@given(st.lists(st.integers(-9, 9), min_size=1), st.integers(-9, 9))
def test_lower_and_upper(values: list[int], bound: int) -> None:
    assert lower(many(*values), bound).tolist() == [lower(value, bound) for value in values]  # type: ignore[arg-type,attr-defined]
    assert upper(bound, many(*values)).tolist() == [upper(bound, value) for value in values]  # type: ignore[arg-type,attr-defined]
    assert type(lower(values[0], bound)) is type(upper(values[0], bound)) is int


def clipped(lo: int, hi: int) -> Any:
    """Decides in several ways, one after the other."""
    if lo % 3 == 0:
        return max(lo, 5), "third"
    return (min(lo, hi - 4), "odd") if hi % 2 else (lo, "even")


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=20))
def test_groups_hold_each_cut_once(ends: list[tuple[int, int]]) -> None:
    lo, hi = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    seen = {}
    for rows, (number, text) in in_groups(clipped, lo, hi):
        for row, value in zip(rows.tolist(), np.broadcast_to(number, len(rows)).tolist(), strict=True):
            assert row not in seen
            seen[row] = (value, text)
    assert [seen[row] for row in range(len(ends))] == [clipped(*end) for end in ends]


def test_what_is_refused_of_one_is_refused_of_all() -> None:
    def refuse(lo: int, hi: int) -> None:
        if lo == 4:
            raise ValueError

    with pytest.raises(ValueError):
        list(in_groups(refuse, np.array([1, 4, 6]), np.array([9, 9, 9])))


@settings(max_examples=examples(30))
@given(convolutions())
def test_convolutions(case: tuple[Operator, OpGraph]) -> None:
    check_alike(*case)


@settings(max_examples=examples(20))
@given(poolings())
def test_poolings(case: tuple[Operator, OpGraph]) -> None:
    check_alike(*case)


def test_pieces_that_differ_in_what_they_read() -> None:
    parts = [(1, 4, 6, 2), (1, 4, 6, 3), (1, 4, 6, 4)]
    whole = (1, 4, 6, 9)
    joined = node("nn.relu", {}, "i0", parts[0]), node("concatenate", {"axis": -1}, "n0 i1 i2", whole)
    assert check_alike(*single(parts, [(9,)], *joined, node("add", {}, "n1 c0", whole))) > 20
