"""Ranking: models in order of their predicted latency, what the phone measured of the best, and whether the two agree."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.table import Table

from tvm_codl.report.statistics import Statistics


class Predicted(msgspec.Struct, frozen=True):
    """Milliseconds; ``sigma_ms`` is the standard error of co-execution's, operators taken as independent of each other.

    ``known`` is the share of the whole-operator time (0 to 1) that rests on a measurement of that very operator.
    """

    model: str
    operators: int
    cpu_ms: float
    gpu_ms: float
    coexec_ms: float
    sigma_ms: float
    known: float


class Measured(msgspec.Struct, frozen=True):
    """One model on the phone under its own plan; ``predicted_ms`` is what that plan, made of more records, promised."""

    model: str
    latency_ms: Statistics
    predicted_ms: float
    max_rel_err: float


class Agreement(msgspec.Struct, frozen=True):
    """How the order by prediction and the order by measurement agree over the ``n`` models that were measured.

    ``kendall`` is tau-b, ``spearman`` rho; none for fewer than two models, or if all take the same time.  ``kendall_p`` is the chance of such a tau
    where the orders have nothing to do with each other.  ``regret`` is how much slower the best by prediction is than
    the best measured (0.1: a tenth).
    """

    n: int
    kendall: float | None
    kendall_p: float | None
    spearman: float | None
    best_predicted: str
    best_measured: str
    regret: float

    @property
    def same_best(self) -> bool:
        return self.best_predicted == self.best_measured


class Ranking(msgspec.Struct, frozen=True):
    """``predicted`` holds all models, the fastest first; ``measured`` the best few of them, the fastest first.

    ``records`` counts the measurements that the prediction rests on, ``seeded`` those of them made for it because the
    store knew nothing of the device.
    """

    device: str
    records: int
    seeded: int
    predicted: tuple[Predicted, ...]
    measured: tuple[Measured, ...] = ()
    agreement: Agreement | None = None


def agreement(predicted_ms: dict[str, float], measured_ms: dict[str, float]) -> Agreement:
    """Compares the orders over the models in ``measured_ms``, at least one, all of them in ``predicted_ms``.

    Of equal predictions the first is the best.
    """
    names = [name for name in predicted_ms if name in measured_ms]
    ours, theirs = [predicted_ms[name] for name in names], [measured_ms[name] for name in names]
    best, fastest = names[ours.index(min(ours))], names[theirs.index(min(theirs))]
    kendall = kendall_p = spearman = None
    if len(set(ours)) > 1 and len(set(theirs)) > 1:  # models that all take the same time have no order
        from scipy import stats  # a second to import

        tau = stats.kendalltau(ours, theirs)
        kendall, kendall_p = float(tau.statistic), float(tau.pvalue)
        spearman = float(stats.spearmanr(ours, theirs).statistic)
    regret = measured_ms[best] / measured_ms[fastest] - 1
    return Agreement(len(names), kendall, kendall_p, spearman, best, fastest, regret)


def ranking_table(ranking: Ranking) -> Table:
    """A rich table in the order of prediction; a star marks the fastest that was measured."""
    table = Table(title=ranking.device, title_justify="left")
    for heading in ("", "model", "predicted ms", "±", "CPU", "GPU", "known", "measured ms", "p10", "p90", "rank"):
        table.add_column(heading, justify="left" if heading in ("model",) else "right", no_wrap=True)
    found = {m.model: (place, m) for place, m in enumerate(ranking.measured, 1)}
    for place, model in enumerate(ranking.predicted, 1):
        row = [str(place), model.model]
        row += [f"{ms:.2f}" for ms in (model.coexec_ms, model.sigma_ms, model.cpu_ms, model.gpu_ms)]
        row.append(f"{model.known:.0%}")
        if model.model in found:
            rank, times = found[model.model][0], found[model.model][1].latency_ms
            row += [
                f"{times.median:.2f}",
                f"{times.p10:.2f}",
                f"{times.p90:.2f}",
                f"{rank} *" if rank == 1 else str(rank),
            ]
        table.add_row(*row, style="bold green" if row[-1].endswith("*") else None)
    return table


def agreement_words(found: Agreement) -> str:
    """One or two sentences for a person."""
    if found.kendall is None:
        orders = f"{found.n} model{'s' if found.n > 1 else ''} measured: there is no order to compare."
    else:
        orders = f"The two orders agree with Kendall's tau {found.kendall:+.2f} (p {found.kendall_p:.2g})"
        orders += f", Spearman's rho {found.spearman:+.2f}, over {found.n} models."
    if found.same_best:
        return f"{orders} The best by prediction, {found.best_predicted}, is the best measured."
    return (
        f"{orders} The best by prediction, {found.best_predicted}, measured {found.regret:.1%} slower than "
        f"the best measured, {found.best_measured}."
    )


def in_order(models: Sequence[Predicted]) -> tuple[Predicted, ...]:
    """The fastest first; of equals the one whose name comes first."""
    return tuple(sorted(models, key=lambda model: (model.coexec_ms, model.model)))
