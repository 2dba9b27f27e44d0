"""Evaluation: predictions next to the baselines, as a table and as a picture (SVG that stands alone)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

import numpy as np
from rich.table import Table

from tvm_codl.cost.evaluation.metrics import Result, Scatter
from tvm_codl.cost.phone_few import FewShot

_PANEL, _GAP, _LEFT, _TOP, _FOOT = 300, 70, 60, 50, 60
_COLOURS = ("#1b6ca8", "#d1495b", "#5b8c5a", "#edae49", "#7d5ba6", "#666666")
_ERRORS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


def table(results: Iterable[Result], title: str = "") -> Table:
    """One row a result; the last columns are empty where the learner states no uncertainty."""
    made = Table(title=title or None, title_justify="left")
    for heading in ("device", "operators", "learner"):
        made.add_column(heading, no_wrap=True)
    for heading in ("n", "±5 %", "±10 %", "±20 %", "median", "p90", "in 50 %", "in 80 %", "in 90 %"):
        made.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        found = result.metrics
        shares = (found.within_5, found.within_10, found.within_20, found.median_error, found.p90_error)
        covered = (found.coverage_50, found.coverage_80, found.coverage_90)
        made.add_row(
            *(result.device, result.op_class, result.learner, str(found.n)),
            *(_percent(share) for share in shares),
            *("" if share is None else _percent(share) for share in covered),
        )
    return made


def few_table(shots: Iterable[FewShot], title: str = "") -> Table:
    """One row a phone and learner: what a few samples teach alone, and with the other phones' measurements."""
    made = Table(title=title or None, title_justify="left")
    for heading in ("device", "learner"):
        made.add_column(heading, no_wrap=True)
    for heading in ("samples", "±10 % alone", "median", "±10 % with others'", "median", "ratio of medians"):
        made.add_column(heading, justify="right", no_wrap=True)
    for shot in shots:
        figures = [
            _percent(share) for one in (shot.alone, shot.with_others) for share in (one.within_10, one.median_error)
        ]
        made.add_row(shot.device, shot.learner, str(shot.samples), *figures, f"{shot.ratio:.2f}")
    return made


def picture(scatters: Sequence[Scatter], title: str = "") -> str:
    """An SVG: for each scatter, above, predicted against measured times with a band of 10 %, for the first learner;
    below, the share of operators with at most a given error, for each learner."""
    width = _LEFT + max(len(scatters), 1) * (_PANEL + _GAP)
    height = _TOP + 2 * (_PANEL + _GAP) + _FOOT - _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(_LEFT, 20, title, size=15),
    ]
    for at, scatter in enumerate(scatters):
        left = _LEFT + at * (_PANEL + _GAP)
        parts += _times(scatter, left, _TOP)
        parts += _errors(scatter, left, _TOP + _PANEL + _GAP)
    return "\n".join([*parts, "</svg>", ""])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _times(scatter: Scatter, left: float, top: float) -> list[str]:
    learner, predicted = next(iter(scatter.predicted_ms.items()))
    both = [*scatter.measured_ms, *predicted]
    low, high = math.floor(math.log10(min(both))), math.ceil(math.log10(max(both)))
    span = max(high - low, 1)

    def x(ms: float) -> float:
        return left + _PANEL * min(max((math.log10(ms) - low) / span, 0.0), 1.0)

    def y(ms: float) -> float:
        return top + _PANEL * (1.0 - min(max((math.log10(ms) - low) / span, 0.0), 1.0))

    first, last = 10.0**low, 10.0 ** (low + span)
    below, above = ((first / 0.9, first), (last, 0.9 * last)), ((last / 1.1, last), (first, 1.1 * first))
    corners = ((first, first), *below, (last, last), *above)
    band = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)
    parts = [
        _text(left, top - 10, f"{scatter.device}: {learner}, {len(predicted)} held out", size=13),
        f'<polygon points="{band}" fill="#cfe3f1"/>',
        *_frame(left, top),
    ]
    for exponent in range(low, low + span + 1):
        ms = 10.0**exponent
        parts += [_text(x(ms), top + _PANEL + 16, f"{ms:g}", anchor="middle")]
        parts += [_text(left - 6, y(ms) + 4, f"{ms:g}", anchor="end")]
    parts.append(_text(left + _PANEL / 2, top + _PANEL + 34, "measured ms (predicted ms upwards)", anchor="middle"))
    parts += [
        f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2" fill="{_COLOURS[0]}" fill-opacity="0.5"/>'
        for a, b in zip(scatter.measured_ms, predicted, strict=True)
    ]
    return parts


def _errors(scatter: Scatter, left: float, top: float) -> list[str]:
    most = _ERRORS[-1]

    def x(error: float) -> float:
        return left + _PANEL * min(error / most, 1.0)

    parts = _frame(left, top)
    for error in _ERRORS:
        parts.append(_text(x(error), top + _PANEL + 16, f"{100 * error:g} %", anchor="middle"))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_text(left - 6, top + _PANEL * (1 - share) + 4, f"{100 * share:g} %", anchor="end"))
    grey = 'stroke="#bbbbbb" stroke-dasharray="4 3"'
    parts.append(f'<line x1="{x(0.1):.1f}" y1="{top}" x2="{x(0.1):.1f}" y2="{top + _PANEL}" {grey}/>')
    parts.append(_text(left + _PANEL / 2, top + _PANEL + 34, "error at most (share upwards)", anchor="middle"))
    measured = np.array(scatter.measured_ms)
    for at, (learner, predicted) in enumerate(scatter.predicted_ms.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        errors = np.sort(np.abs(np.array(predicted) / measured - 1.0))
        parts.append(_line(errors.tolist(), x, top, colour))
        parts.append(_text(left + _PANEL - 8, top + _PANEL - 12 - 16 * at, learner, anchor="end", colour=colour))
    return parts


def _line(errors: list[float], x: Callable[[float], float], top: float, colour: str) -> str:
    points = [f"{x(0.0):.1f},{top + _PANEL:.1f}"]
    for rank, value in enumerate(errors, 1):
        if value <= _ERRORS[-1]:
            points.append(f"{x(value):.1f},{top + _PANEL * (1 - rank / len(errors)):.1f}")
    return f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _frame(left: float, top: float) -> list[str]:
    return [f'<rect x="{left}" y="{top}" width="{_PANEL}" height="{_PANEL}" fill="none" stroke="#888888"/>']


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, colour: str = "#222222") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f"<text {place}>{escape(words)}</text>"
