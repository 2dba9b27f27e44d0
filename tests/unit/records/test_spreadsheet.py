from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.records.strategies import records
from tests.unit.records.test_store import record
from tvm_codl.records.record import Record
from tvm_codl.records.spreadsheet import COLUMNS, header, record_row, rows


def read(text: str) -> list[Record | ValueError]:
    return [value for _, value in rows(io.StringIO(text, newline=""))]


@given(st.lists(records, max_size=4))
def test_records_come_back(made: list[Record]) -> None:
    assert read(header() + "".join(map(record_row, made))) == made


@given(records)
def test_no_text_is_a_formula(made: Record) -> None:
    cells = next(csv.reader(io.StringIO(record_row(made), newline="")))
    assert len(cells) == len(COLUMNS)
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)


def test_columns_may_come_in_any_order_and_some_may_be_missing() -> None:
    text = (
        "when,times_ms,build,device,processor,extent,hi,lo,axis,kind,workload\n"
        '1700000000.25,"[1.5,1.25,9.0]",b1,phone,gpu,3,1,0,height,conv2d,conv\n'
    )
    assert read(text) == [record()]


@pytest.mark.parametrize(
    "text", ["", "\n", "workload\n", header().replace("when", "then"), header()[:-1] + ',"when"\n']
)
def test_a_header_says_what_is_there(text: str) -> None:
    with pytest.raises(ValueError):
        read(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[1.5,1.25,9.0]", "1.5"),
        ("[1.5,1.25,9.0]", "[1.5,-1]"),
        ('"gpu"', '"npu"'),
        ('"alone"', '"lonely"'),
        (",1700000000.25,", ",NaN,"),
        (",3,", ",3.5,"),
        (",3,", ",three,"),
        (",0,1700000000.25", ",9,1700000000.25"),
        ('"b1",', ""),
    ],
)
def test_a_bad_row_is_told_by_its_line_and_the_next_is_read(old: str, new: str) -> None:
    row = record_row(record())
    assert old in row
    text = header() + row + row.replace(old, new) + row
    found = list(rows(io.StringIO(text, newline="")))
    assert [number for number, _ in found] == [2, 3, 4]
    assert [isinstance(value, ValueError) for _, value in found] == [False, True, False]
