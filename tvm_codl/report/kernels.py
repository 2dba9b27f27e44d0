"""The table of tuned kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from tvm_codl.kernels.tuner.tune import Tuned


def tuned_table(tuned: Sequence[Tuned]) -> Table:
    """A rich table, one row a kernel."""
    table = Table()
    for heading in ("", "kernel", "estimate ms", "best ms", "gain", "GFLOP/s", "trials", "new"):
        table.add_column(heading, justify="left" if heading in ("", "kernel") else "right", no_wrap=True)
    for k in tuned:
        times = f"{k.estimate_ms:.3f}", f"{k.best_ms:.3f}", f"{k.estimate_ms / k.best_ms:.2f}x", f"{k.gflops:.1f}"
        table.add_row(k.processor, k.task, *times, str(k.trials), str(k.new))
    return table
