"""The table that every benchmark ends with: CPU only, GPU only, co-execution and the ideal."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from rich.table import Table

from tvm_codl.report.statistics import Statistics


class Comparison(msgspec.Struct, frozen=True):
    """Times of one model from one interleaved run; ``ideal_ms`` is the sum over operators of 1/(1/cpu + 1/gpu).

    A processor that does not run the whole model has no times.  ``peers``: other programs' times, by name."""

    model: str
    cpu: Statistics | None
    gpu: Statistics | None
    coexec: Statistics
    ideal_ms: float
    peers: dict[str, Statistics] = {}

    @property
    def medians(self) -> dict[str, float]:
        """By ``cpu``, ``gpu`` and ``coexec``, of those that run the model."""
        rows = {"cpu": self.cpu, "gpu": self.gpu, "coexec": self.coexec}
        return {name: times.median for name, times in rows.items() if times is not None}

    @property
    def best_single(self) -> str | None:
        """``cpu`` or ``gpu``; None where neither runs the whole model."""
        return min((on for on in ("cpu", "gpu") if on in self.medians), key=self.medians.__getitem__, default=None)

    @property
    def best_single_ms(self) -> float | None:
        best = self.best_single
        return None if best is None else self.medians[best]

    @property
    def speedup(self) -> float | None:
        """The better single processor's median over co-execution's."""
        best = self.best_single_ms
        return None if best is None else best / self.coexec.median

    @property
    def efficiency(self) -> float:
        """Ideal over co-execution's median; 1 when nothing is lost in cuts, waits and copies."""
        return self.ideal_ms / self.coexec.median

    @property
    def winner(self) -> str:
        """One of :attr:`medians` or of the peers."""
        medians = self.medians | {name: times.median for name, times in self.peers.items()}
        return min(medians, key=medians.__getitem__)

    @property
    def best_peer(self) -> str | None:
        return min(self.peers, key=lambda name: self.peers[name].median, default=None)

    @property
    def over_best_peer(self) -> float | None:
        """The best peer's median over co-execution's; above 1: co-execution is faster."""
        best = self.best_peer
        return None if best is None else self.peers[best].median / self.coexec.median


def make_table(words: Iterable[str], numbers: Iterable[str], title: str = "") -> Table:
    """A table with columns of ``words`` to the left, then columns of ``numbers``; on a narrow terminal words are wrapped,
    numbers never cut."""
    table = Table(title=title or None, title_justify="left")
    for heading in words:
        table.add_column(heading, overflow="fold", min_width=len(heading))
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def comparison_table(comparison: Comparison) -> Table:
    """A rich table, one row a way to run; a star marks the fastest that was measured."""
    table = make_table([""], ["median ms", "p10", "p90", "n", "vs best single"], comparison.model)
    ours = {"cpu": "CPU only", "gpu": "GPU only", "coexec": "co-execution"}
    for key, name in {**ours, **{name: name for name in comparison.peers}}.items():
        times = comparison.peers.get(key) or getattr(comparison, key)
        if times is None:
            table.add_row(name, "does not run", style="dim")
            continue
        wins = key == comparison.winner
        table.add_row(
            f"{name} *" if wins else name,
            *(f"{value:.3f}" for value in (times.median, times.p10, times.p90)),
            str(times.n),
            _against(comparison, times.median),
            style="bold green" if wins else None,
        )
    ideal = comparison.ideal_ms
    table.add_row("ideal", f"{ideal:.3f}", "", "", "", _against(comparison, ideal), style="dim")
    return table


def _against(comparison: Comparison, ms: float) -> str:
    best = comparison.best_single_ms
    return f"{best / ms:.2f}x" if best is not None and ms > 0 else ""
