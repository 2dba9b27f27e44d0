from __future__ import annotations

import re

from tests.unit.report.test_page import NASTY, Outline
from tvm_codl.report.table import make_table
from tvm_codl.report.tables_page import Bar, PageTable, TablesPage, lengths, page_table, render_tables


def test_a_printed_table_becomes_one_of_a_page_with_its_bars() -> None:
    printed = make_table(["", "model"], ["ms"], "times")
    printed.add_row("1 *", "a", "2.00")
    printed.add_row("2", "b", "4.00")
    table = page_table(printed, "time", lengths([2.0, 4.0]))
    assert (table.title, table.words, table.numbers) == ("times", ("", "model", "time"), ("ms",))
    assert table.rows[0] == ("1 *", "a", Bar("", (("after", 0.5),)), "2.00")
    assert page_table(make_table(["model"], ["ms"])).rows == ()


def test_the_whole_width_is_the_largest_value_or_the_one_that_is_given() -> None:
    assert [bar.parts[0][1] for bar in lengths([1.0, 2.0])] == [0.5, 1.0]
    assert [bar.parts[0][1] for bar in lengths([1.0, 2.0], 4.0)] == [0.25, 0.5]
    assert [bar.parts[0][1] for bar in lengths([0.0])] == [0.0]


def test_a_page_is_whole_escapes_its_words_and_asks_for_no_other_file() -> None:
    table = PageTable(
        NASTY, ("", NASTY), (NASTY,), (("", NASTY, NASTY), (Bar(NASTY, (("cpu", 0.25),)), "", "1")), (("cpu", NASTY),), NASTY
    )  # fmt: skip
    text = render_tables(TablesPage(NASTY, NASTY, ((NASTY, NASTY),), (table, table), "<svg>", NASTY))
    outline = Outline(text)
    addresses = [value for _, found in outline.found for name, value in found.items() if name in ("src", "href")]
    assert addresses == ["data:,", "data:image/svg+xml;base64,PHN2Zz4="]
    assert "<script" not in text and text.count("<img") == 1 and "default-src 'none'" in text
    assert not re.search(r"@import|url\(|fetch\(", text)
    assert all(found.get("scope") for tag, found in outline.found if tag == "th")
    assert "width: 25.0%" in text
