"""Text: tables as plain lines, the same on a terminal and in a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

WIDTH = 120


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str]) -> list[str]:
    """One line for the headings and one a row, no longer than ``WIDTH``; columns with headings in ``left`` start there."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right", no_wrap=True)
        if heading == "operator":
            table.columns[-1].max_width = 30
    for row in rows:
        table.add_row(*row)
    console = Console(width=WIDTH, force_terminal=False, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def milliseconds(ms: float | None) -> str:
    return "" if ms is None else f"{ms:.3f}"
