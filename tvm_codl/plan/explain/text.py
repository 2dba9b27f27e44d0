"""Text: tables and sentences as plain lines that fit a narrow terminal, the same there and in a file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

WIDTH = 80
_GAP = 2
_SHORTEST_NAME = 6


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str]) -> list[str]:
    """One line for the headings and one a row; columns with headings in ``left`` start there.

    The names of the column ``operator`` are shortened until the lines are no longer than ``WIDTH``; numbers never are.
    """
    lines = [list(headings), *map(list, rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    name = headings.index("operator")
    others = sum(widths) - widths[name] + _GAP * (len(widths) - 1)
    widths[name] = min(widths[name], max(WIDTH - others, _SHORTEST_NAME))
    for line in lines:
        line[name] = shorten(line[name], widths[name])
    starts = [heading in left for heading in headings]
    return [(" " * _GAP).join(map(_fill, line, widths, starts)).rstrip() for line in lines]


def wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    """Lines no longer than ``WIDTH``; ``first`` and ``rest`` are what they start with."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def shorten(name: str, width: int) -> str:
    """Leaves out the middle: the end has the number that tells an operator from others of its kind."""
    if cell_len(name) <= width:
        return name
    digits = len(name) - len(name.rstrip("0123456789"))
    end = min(max((width - 1) // 2, digits), width - 2)
    return f"{set_cell_size(name, width - 1 - end)}…{set_cell_size(name[::-1], end)[::-1]}"


def milliseconds(ms: float | None, sign: str = "") -> str:
    """With fewer decimals for long times; ``sign`` is ``+`` where it is a difference."""
    return "" if ms is None else f"{ms:{sign}.{3 if abs(ms) < 10 else 2 if abs(ms) < 100 else 1}f}"


def _fill(cell: str, width: int, starts: bool) -> str:
    space = " " * (width - cell_len(cell))
    return cell + space if starts else space + cell
