"""Tables page: tables as one HTML file that needs no network and looks like the page of a plan."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Literal

import msgspec
from rich.table import Table

from tvm_codl.report.page import environment

Colour = Literal["cpu", "gpu", "before", "after"]


class Bar(msgspec.Struct, frozen=True):
    """``words`` behind a bar of coloured parts, each a share (0 to 1) of the bar's width."""

    words: str
    parts: tuple[tuple[Colour, float], ...]


class PageTable(msgspec.Struct, frozen=True):
    """Columns of ``words``, then columns of ``numbers``; a row has a cell for each.  ``key`` says what the colours are."""

    title: str
    words: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: tuple[tuple[str | Bar, ...], ...]
    key: tuple[tuple[Colour, str], ...] = ()
    note: str = ""


class TablesPage(msgspec.Struct, frozen=True):
    """``verdict`` is one line; ``facts`` are names and values; ``picture`` is an SVG, and ``picture_words`` say what it shows."""

    title: str
    verdict: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[PageTable, ...]
    picture: str = ""
    picture_words: str = ""


def page_table(
    table: Table, heading: str = "", bars: Sequence[Bar] = (), key: tuple[tuple[Colour, str], ...] = ()
) -> PageTable:
    """A table that :func:`~tvm_codl.report.table.make_table` made, with a column of bars behind its words."""
    words = [column for column in table.columns if column.justify != "right"]
    numbers = [column for column in table.columns if column.justify == "right"]
    cells: list[Sequence[str | Bar]] = [[str(cell) for cell in column.cells] for column in words]
    cells += [bars] if bars else []
    cells += [[str(cell) for cell in column.cells] for column in numbers]
    return PageTable(
        str(table.title or ""),
        (*(str(column.header) for column in words), *([heading] if bars else [])),
        tuple(str(column.header) for column in numbers),
        tuple(zip(*cells, strict=True)),
        key,
    )


def lengths(values: Sequence[float], longest: float = 0.0, words: Sequence[str] = ()) -> list[Bar]:
    """A bar for each value; one of ``longest``, by default the largest, has the whole width."""
    whole = longest or max(values, default=0.0) or 1.0
    said = words or [""] * len(values)
    return [Bar(text, (("after", value / whole),)) for text, value in zip(said, values, strict=True)]


def render_tables(page: TablesPage) -> str:
    """The whole file."""
    made = environment()
    made.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
    return made.get_template("tables.html").render(page=page)
