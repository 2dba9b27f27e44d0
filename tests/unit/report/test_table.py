from __future__ import annotations

import io

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tvm_codl.errors import CheckFailed
from tvm_codl.report.statistics import Statistics
from tvm_codl.report.table import Comparison, comparison_table


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_statistics_are_numpys_quantiles(samples: list[float]) -> None:
    found = Statistics.of(samples)
    assert (found.median, found.p10, found.p90) == pytest.approx(tuple(np.quantile(samples, [0.5, 0.1, 0.9])))
    assert found.n == len(samples)


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [float("inf")]])
def test_no_samples_and_no_numbers_have_no_statistics(samples: list[float]) -> None:
    with pytest.raises(CheckFailed):
        Statistics.of(samples)


def comparison(cpu: float | None, gpu: float | None, coexec: float) -> Comparison:
    one, two = (Statistics.of([t, t, t]) if t is not None else None for t in (cpu, gpu))
    return Comparison("net", one, two, Statistics.of([coexec] * 3), ideal_ms=3.0)


def test_the_comparisons_ratios() -> None:
    found = comparison(6.0, 9.0, 4.0)
    assert (found.best_single_ms, found.speedup, found.efficiency) == (6.0, 1.5, 0.75)
    assert (found.winner, found.best_single) == ("coexec", "cpu")


def test_a_processor_that_does_not_run_the_model_is_compared_with_nothing() -> None:
    found = comparison(None, 9.0, 6.0)
    assert (found.best_single, found.best_single_ms, found.speedup, found.winner) == ("gpu", 9.0, 1.5, "coexec")
    found = comparison(None, None, 6.0)
    assert (found.best_single, found.best_single_ms, found.speedup, found.winner) == (None, None, None, "coexec")
    assert found.efficiency == 0.5


def test_a_peer_may_win() -> None:
    peers = {"slow one": Statistics.of([5.0]), "fast one": Statistics.of([3.0])}
    found = msgspec.structs.replace(comparison(6.0, 9.0, 4.0), peers=peers)
    assert (found.best_peer, found.over_best_peer, found.winner, found.best_single) == (
        "fast one",
        0.75,
        "fast one",
        "cpu",
    )
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(comparison_table(found))
    text = console.export_text()
    assert "fast one *" in text and "slow one" in text and text.count("*") == 1
    assert comparison(6.0, 9.0, 4.0).over_best_peer is None


@pytest.mark.parametrize(
    ("times", "row"),
    [
        ((6.0, 9.0, 4.0), "co-execution *"),
        ((3.5, 9.0, 4.0), "CPU only *"),
        ((6.0, 2.0, 4.0), "GPU only *"),
        ((None, 2.0, 4.0), "GPU only *"),
        ((None, None, 4.0), "co-execution *"),
    ],
)
def test_the_table_marks_the_winner(times: tuple[float | None, float | None, float], row: str) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(comparison_table(comparison(*times)))
    text = console.export_text()
    assert row in text and text.count("*") == 1
    assert text.count("does not run") == times.count(None)
    for word in ("net", "CPU only", "GPU only", "co-execution", "ideal", "3.000", "median ms", "p90"):
        assert word in text
