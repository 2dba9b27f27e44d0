"""Tuned kernels, as a table and as a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING

from rich.table import Table

from tvm_codl.report.table import make_table
from tvm_codl.report.tables_page import Bar, TablesPage, page_table

if TYPE_CHECKING:
    from tvm_codl.kernels.tuner.tune import Tuned


def tuned_table(tuned: Sequence[Tuned]) -> Table:
    """A rich table, one row a kernel."""
    numbers = ("estimate", "best", "gain", "GFLOP/s", "trials", "new")
    table = make_table(["", "kernel"], numbers, "kernels, times in ms")
    for k in tuned:
        times = f"{k.estimate_ms:.3f}", f"{k.best_ms:.3f}", f"{k.estimate_ms / k.best_ms:.2f}x", f"{k.gflops:.1f}"
        table.add_row(k.processor, k.task, *times, str(k.trials), str(k.new))
    return table


def tuned_page(model: str, device: str, records: str, tuned: Sequence[Tuned]) -> TablesPage:
    """The same table, with each kernel's GFLOP/s by its estimated configuration and by its best one."""
    most = max((k.gflops for k in tuned), default=0.0) or 1.0
    bars = []
    for k in tuned:
        before = min(k.gflops * k.best_ms / k.estimate_ms, k.gflops)
        gained = k.gflops - before
        bars.append(Bar(f"{before:.1f} → {k.gflops:.1f}", (("before", before / most), ("after", gained / most))))
    gains = [k.estimate_ms / k.best_ms for k in tuned if k.estimate_ms < math.inf]
    faster = sum(k.best_ms < k.estimate_ms for k in tuned)
    verdict = f"{faster} of {len(tuned)} kernels run faster by their best configuration than by the estimated one"
    if gains:
        verdict += f"; where that runs, by {geometric_mean(gains):.2f} times (geometric mean)"
    table = page_table(
        tuned_table(tuned), "GFLOP/s, before and after", bars,
        (("before", "by the estimated configuration"), ("after", "gained by tuning")),
    )  # fmt: skip
    return TablesPage(f"{model}: tuned kernels", f"{verdict}.", (("phone", device), ("records", records)), (table,))
