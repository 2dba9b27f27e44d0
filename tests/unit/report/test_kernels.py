from __future__ import annotations

import io
import math
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tvm_codl.report.kernels import tuned_page, tuned_table
from tvm_codl.report.tables_page import Bar


@pytest.mark.parametrize("task", ["conv2d_nhwc.codl", "depthwise_conv2d_nhwc.codl"])
def test_the_table_fits_a_narrow_terminal_without_cutting(task: str) -> None:
    kernel: Any = SimpleNamespace(
        processor="gpu", task=task, estimate_ms=1234.567, best_ms=1034.567, gflops=1234.5, trials=1024, new=1000
    )
    text = io.StringIO()
    Console(file=text, width=80).print(tuned_table([kernel]))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in text.getvalue()
    for number in ("1234.567", "1034.567", "1.19x", "1234.5", "1024", "1000"):
        assert number in text.getvalue()
    assert "".join(line.split("│")[2].strip() for line in lines if "│" in line) == task


def kernel(estimate_ms: float, best_ms: float, gflops: float) -> Any:
    return SimpleNamespace(
        processor="gpu", task="conv2d", estimate_ms=estimate_ms, best_ms=best_ms, gflops=gflops, trials=9, new=4
    )


def test_the_page_shows_what_each_kernel_gains() -> None:
    page = tuned_page("net", "a phone", "net.log", [kernel(2.0, 1.0, 40.0), kernel(math.inf, 0.5, 20.0)])
    (table,) = page.tables
    bars = [cell for row in table.rows for cell in row if isinstance(cell, Bar)]
    assert [bar.words for bar in bars] == ["20.0 → 40.0", "0.0 → 20.0"]
    assert [[share for _, share in bar.parts] for bar in bars] == [[0.5, 0.5], [0.0, 0.5]]
    assert "2 of 2 kernels" in page.verdict and "2.00 times" in page.verdict
    assert ("records", "net.log") in page.facts


def test_a_page_without_a_kernel() -> None:
    page = tuned_page("net", "a phone", "net.log", [])
    assert page.verdict.startswith("0 of 0 kernels") and page.tables[0].rows == ()
