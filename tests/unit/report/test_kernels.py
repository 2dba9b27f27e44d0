from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tvm_codl.report.kernels import tuned_table


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
