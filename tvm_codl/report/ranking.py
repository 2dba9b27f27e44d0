"""Ranking: models in order of predicted latency, the measured latency of the best few, and whether the orders agree."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Group
from rich.table import Table

from tvm_codl.report.statistics import Statistics
from tvm_codl.report.table import make_table
from tvm_codl.report.tables_page import TablesPage, lengths, page_table


class Predicted(msgspec.Struct, frozen=True):
    """Milliseconds; ``sigma_ms`` is the standard error of ``coexec_ms``, for independent operators.

    ``known`` is the share (0 to 1) of the whole-operator time whose operators were measured themselves.
    """

    model: str
    operators: int
    cpu_ms: float
    gpu_ms: float
    coexec_ms: float
    sigma_ms: float
    known: float


class Measured(msgspec.Struct, frozen=True):
    """One model on the phone under its own plan; ``predicted_ms`` is that plan's own prediction, from more records."""

    model: str
    latency_ms: Statistics
    predicted_ms: float
    max_rel_err: float


class Agreement(msgspec.Struct, frozen=True):
    """Agreement of the predicted and the measured order of the ``n`` measured models.

    ``kendall`` is tau-b with p-value ``kendall_p``, ``spearman`` rho; None for fewer than two models, or if all take the
    same time.  ``regret`` is how much slower the best by prediction is than the best measured (0.1: a tenth).
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
    """``predicted`` holds all models, ``measured`` the best few of them; the fastest first.

    ``records`` counts the measurements behind the prediction, ``seeded`` those of them that were made for it because the
    store had none of the device.
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


def ranking_table(ranking: Ranking) -> Group:
    """Two rich tables, so that they fit a narrow terminal: all models in the order of prediction, and those that were
    measured, the fastest first and with a star."""
    return Group(*_tables(ranking))


def ranking_page(ranking: Ranking) -> TablesPage:
    """The same tables, with bars of the latencies, and whether the orders agree."""
    times = [model.coexec_ms for model in ranking.predicted], [model.latency_ms.median for model in ranking.measured]
    longest = max((ms for each in times for ms in each), default=0.0)
    heads = "predicted latency", "measured latency"
    tables = [
        page_table(table, head, lengths(each, longest))
        for table, head, each in zip(_tables(ranking), heads, times, strict=False)
    ]
    verdict = "Predicted only: no model was measured."
    if ranking.agreement is not None:
        verdict = agreement_words(ranking.agreement)
    facts = [("phone", ranking.device), ("records", str(ranking.records)), ("measured for it", str(ranking.seeded))]
    return TablesPage("Models by latency", verdict, tuple(facts), tuple(tables))


def _tables(ranking: Ranking) -> list[Table]:
    headings = ["predicted", "±", "CPU", "GPU", "known"]
    predicted = make_table(["#", "model"], headings, f"{ranking.device}, predicted, in ms")
    for place, model in enumerate(ranking.predicted, 1):
        numbers = (model.coexec_ms, model.sigma_ms, model.cpu_ms, model.gpu_ms)
        predicted.add_row(str(place), model.model, *(f"{ms:.2f}" for ms in numbers), f"{model.known:.0%}")
    if not ranking.measured:
        return [predicted]
    places = {model.model: place for place, model in enumerate(ranking.predicted, 1)}
    headings = ["measured", "p10", "p90", "predicted #"]
    measured = make_table(["#", "model"], headings, f"{ranking.device}, measured, in ms")
    for place, taken in enumerate(ranking.measured, 1):
        latency = taken.latency_ms
        times = [f"{ms:.2f}" for ms in (latency.median, latency.p10, latency.p90)]
        star, style = (" *", "bold green") if place == 1 else ("", None)
        measured.add_row(f"{place}{star}", taken.model, *times, str(places[taken.model]), style=style)
    return [predicted, measured]


def agreement_words(agreement: Agreement) -> str:
    """One or two sentences for a person."""
    if agreement.kendall is None:
        orders = f"{agreement.n} model{'s' if agreement.n > 1 else ''} measured: there is no order to compare."
    else:
        orders = f"The two orders agree with Kendall's tau {agreement.kendall:+.2f} (p {agreement.kendall_p:.2g})"
        orders += f", Spearman's rho {agreement.spearman:+.2f}, over {agreement.n} models."
    if agreement.same_best:
        return f"{orders} The best by prediction, {agreement.best_predicted}, is the best measured."
    return (
        f"{orders} The best by prediction, {agreement.best_predicted}, measured {agreement.regret:.1%} slower than "
        f"the best measured, {agreement.best_measured}."
    )


def in_order(models: Sequence[Predicted]) -> tuple[Predicted, ...]:
    """The fastest first; of equals the one whose name comes first."""
    return tuple(sorted(models, key=lambda model: (model.coexec_ms, model.model)))
