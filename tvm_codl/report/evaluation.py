"""Evaluation: predictions next to the baselines, as a table and as a picture (a standalone SVG)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import altair as alt
import numpy as np
import vl_convert
from rich.table import Table

from tvm_codl.cost.evaluation.metrics import Result, Scatter
from tvm_codl.report.table import make_table

_SIZE = 300
_LARGEST_ERROR = 0.5


def table(results: Iterable[Result], title: str = "") -> Table:
    """One row a result; the last columns are empty where the learner states no uncertainty."""
    numbers = ("n", "±5 %", "±10 %", "±20 %", "median", "p90", "in 50 %", "in 80 %", "in 90 %")
    made = make_table(["device", "operators", "learner"], numbers, title)
    for result in results:
        metrics = result.metrics
        shares = (metrics.within_5, metrics.within_10, metrics.within_20, metrics.median_error, metrics.p90_error)
        covered = (metrics.coverage_50, metrics.coverage_80, metrics.coverage_90)
        made.add_row(
            *(result.device, result.op_class, result.learner, str(metrics.n)),
            *(_percent(share) for share in shares),
            *("" if share is None else _percent(share) for share in covered),
        )
    return made


def picture(scatters: Sequence[Scatter], title: str = "") -> str:
    """An SVG: for each scatter, above, predicted against measured times with a band of 10 %, for the first learner;
    below, the share of operators with at most a given error, for each learner."""
    above, below = alt.hconcat(*map(_times, scatters)), alt.hconcat(*map(_errors, scatters))
    chart = alt.vconcat(above, below, title=title, background="white").resolve_scale(color="independent")
    svg: str = vl_convert.vegalite_to_svg(chart.to_dict())
    return svg


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


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
