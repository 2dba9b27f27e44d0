"""Evaluation: predictions next to the baselines, as a table, as a picture (a standalone SVG) and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import altair as alt
import numpy as np
import vl_convert
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tvm_codl.cost.evaluation.metrics import Result, Scatter
from tvm_codl.report.table import make_table
from tvm_codl.report.tables_page import TablesPage, lengths, page_table

_SIZE = 300
_LARGEST_ERROR = 0.5


def table(results: Iterable[Result], title: str = "") -> Group:
    """For each device the errors, then how often times lie within the uncertainty that a learner states, if one does: two
    rich tables, so that they fit a narrow terminal."""
    heading = [Text(title)] if title else []
    return Group(*heading, *(part for _, errors, stated in _tables(results) for part in (errors, stated) if part))


def page(results: Iterable[Result], scatters: Sequence[Scatter], title: str) -> TablesPage:
    """The same tables, with bars of the shares within 10 %, and the picture."""
    tables = []
    for found, errors, stated in _tables(results):
        bars = lengths([result.metrics.within_10 for result in found], 1.0)
        tables += [page_table(errors, "within ±10 %", bars), *([page_table(stated)] if stated else [])]
    learners = ", ".join(dict.fromkeys(name for scatter in scatters for name in scatter.predicted_ms))
    words = f"Above, predicted against measured times; below, the share of operators within each error, for {learners}."
    svg = picture(scatters) if scatters else ""
    return TablesPage("How well times are predicted", title, (), tuple(tables), svg, words)


def _tables(results: Iterable[Result]) -> Iterator[tuple[list[Result], Table, Table | None]]:
    """By device its results, the table of their errors, and that of their stated uncertainties where one states any."""
    by_device: dict[str, list[Result]] = {}
    for result in results:
        by_device.setdefault(result.device, []).append(result)
    for device, found in by_device.items():
        numbers = ("n", "±5 %", "±10 %", "±20 %", "median", "p90")
        errors = make_table(["operators", "learner"], numbers, f"{device}: share within, and error, in %")
        intervals = make_table(
            ["operators", "learner"], ("50 %", "80 %", "90 %"), f"{device}: share in the stated interval, in %"
        )
        for result in found:
            names, m = (result.op_class, result.learner), result.metrics
            shares = (m.within_5, m.within_10, m.within_20, m.median_error, m.p90_error)
            errors.add_row(*names, str(m.n), *map(_percent, shares))
            covered = [s for s in (m.coverage_50, m.coverage_80, m.coverage_90) if s is not None]
            if covered:
                intervals.add_row(*names, *map(_percent, covered))
        yield found, errors, intervals if intervals.row_count else None


def picture(scatters: Sequence[Scatter], title: str = "") -> str:
    """An SVG: for each scatter, above, predicted against measured times with a band of 10 %, for the first learner;
    below, the share of operators with at most a given error, for each learner."""
    above, below = alt.hconcat(*map(_times, scatters)), alt.hconcat(*map(_errors, scatters))
    chart = alt.vconcat(above, below, title=title, background="white").resolve_scale(color="independent")
    svg: str = vl_convert.vegalite_to_svg(chart.to_dict())
    return svg


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _times(scatter: Scatter) -> alt.LayerChart:
    learner, predicted = next(iter(scatter.predicted_ms.items()))
    both = [*scatter.measured_ms, *predicted]
    ends = [0.9 * min(both), 1.1 * max(both)]
    scale = alt.Scale(type="log", domain=ends)
    x = alt.X("measured:Q", scale=scale, title="measured ms")
    band = [{"measured": ms, "low": 0.9 * ms, "high": 1.1 * ms} for ms in ends]
    points = [{"measured": a, "predicted": b} for a, b in zip(scatter.measured_ms, predicted, strict=True)]
    inside = (
        alt.Chart(alt.Data(values=band))
        .mark_area(clip=True, opacity=0.3)
        .encode(x, alt.Y("low:Q", scale=scale, title="predicted ms"), alt.Y2("high"))
    )
    dots = alt.Chart(alt.Data(values=points)).mark_circle(size=12, opacity=0.5, aria=False)
    made: alt.LayerChart = (inside + dots.encode(x, alt.Y("predicted:Q"))).properties(
        title=f"{scatter.device}: {learner}, {len(predicted)} held out", width=_SIZE, height=_SIZE
    )
    return made


def _errors(scatter: Scatter) -> alt.LayerChart:
    measured, count = np.array(scatter.measured_ms), len(scatter.measured_ms)
    rows = [
        {"learner": learner, "error": error, "share": rank / count}
        for learner, predicted in scatter.predicted_ms.items()
        for rank, error in enumerate(np.sort(np.abs(np.array(predicted) / measured - 1.0)).tolist(), 1)
    ]
    x = alt.X("error:Q", title="error at most", axis=alt.Axis(format="%")).scale(domain=[0, _LARGEST_ERROR])
    y = alt.Y("share:Q", title="share of operators", axis=alt.Axis(format="%")).scale(domain=[0, 1])
    lines = alt.Chart(alt.Data(values=rows)).mark_line(clip=True, interpolate="step-after")
    limit = alt.Chart(alt.Data(values=[{"error": 0.1}])).mark_rule(strokeDash=[4, 3], color="grey").encode(x)
    made: alt.LayerChart = limit + lines.encode(x, y, alt.Color("learner:N", sort=list(scatter.predicted_ms)))
    return made.properties(width=_SIZE, height=_SIZE)
