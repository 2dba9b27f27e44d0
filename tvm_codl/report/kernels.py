"""The table of tuned kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from tvm_codl.report.table import make_table

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
