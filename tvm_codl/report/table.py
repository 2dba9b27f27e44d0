"""The table that every benchmark ends with: CPU only, GPU only, co-execution and the ideal."""

from __future__ import annotations

import msgspec
from rich.table import Table

from tvm_codl.report.statistics import Statistics


class Comparison(msgspec.Struct, frozen=True):
    """Times of one model from one interleaved run; ``ideal_ms`` is the sum over operators of 1/(1/cpu + 1/gpu)."""

    model: str
    cpu: Statistics
    gpu: Statistics
    coexec: Statistics
    ideal_ms: float

    @property
    def best_single_ms(self) -> float:
        return min(self.cpu.median, self.gpu.median)

    @property
    def speedup(self) -> float:
        """The better single processor's median over co-execution's."""
        return self.best_single_ms / self.coexec.median

    @property
    def efficiency(self) -> float:
        """Ideal over co-execution's median; 1 when nothing is lost in cuts, waits and copies."""
        return self.ideal_ms / self.coexec.median

    @property
    def winner(self) -> str:
        rows = {"CPU only": self.cpu, "GPU only": self.gpu, "co-execution": self.coexec}
        return min(rows, key=lambda name: rows[name].median)


def comparison_table(comparison: Comparison) -> Table:
    """A rich table, one row a way to run; a star marks the fastest that was measured."""
    table = Table(title=comparison.model, title_justify="left")
    for heading in ("", "median ms", "p10", "p90", "n", "vs best single"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    rows = (("CPU only", comparison.cpu), ("GPU only", comparison.gpu), ("co-execution", comparison.coexec))
    for name, times in rows:
        wins = name == comparison.winner
        table.add_row(
            f"{name} *" if wins else name,
            *(f"{value:.3f}" for value in (times.median, times.p10, times.p90)),
            str(times.n),
            f"{comparison.best_single_ms / times.median:.2f}x",
            style="bold green" if wins else None,
        )
    ideal = comparison.ideal_ms
    share = f"{comparison.best_single_ms / ideal:.2f}x" if ideal > 0 else ""
    table.add_row("ideal", f"{ideal:.3f}", "", "", "", share, style="dim")
    return table
