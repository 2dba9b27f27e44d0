from __future__ import annotations

import io

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


def comparison(cpu: float, gpu: float, coexec: float) -> Comparison:
    one, two, three = (Statistics.of([t, t, t]) for t in (cpu, gpu, coexec))
    return Comparison("net", one, two, three, ideal_ms=3.0)


def test_the_comparisons_ratios() -> None:
    found = comparison(6.0, 9.0, 4.0)
    assert (found.best_single_ms, found.speedup, found.efficiency) == (6.0, 1.5, 0.75)
    assert found.winner == "co-execution"


@pytest.mark.parametrize(
    ("times", "row"),
    [((6.0, 9.0, 4.0), "co-execution *"), ((3.5, 9.0, 4.0), "CPU only *"), ((6.0, 2.0, 4.0), "GPU only *")],
)
def test_the_table_marks_the_winner(times: tuple[float, float, float], row: str) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(comparison_table(comparison(*times)))
    text = console.export_text()
    assert row in text and text.count("*") == 1
    for word in ("net", "CPU only", "GPU only", "co-execution", "ideal", "3.000", "median ms", "p90"):
        assert word in text
