from __future__ import annotations

import msgspec
import pytest

from benchmarks.gpu_rows import Convolution, Row, summary
from tvm_codl.report.statistics import Statistics

STEM = Convolution(1, 224, 224, 3, 64, (7, 7), (2, 2), (3, 3, 3, 3), (1, 1), 1)


def row(**ms: float) -> Row:
    times = {name: Statistics.of([each]) for name, each in ms.items()}
    share = {name: 1.0 / each for name, each in ms.items()}
    return Row(STEM.name, msgspec.to_builtins(STEM), STEM.flops, {"net": 1}, times, {}, {}, share, {})


def test_a_convolutions_size_and_work() -> None:
    assert (STEM.rows, STEM.columns) == (112, 112)
    assert STEM.flops == 2 * 112 * 112 * 64 * 7 * 7 * 3
    depthwise = Convolution(1, 14, 14, 32, 32, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 32)
    assert depthwise.depthwise and depthwise.flops == 2 * 14 * 14 * 32 * 9 and not STEM.depthwise
    dilated = msgspec.structs.replace(depthwise, dilation=(2, 2))
    assert dilated.rows == 12
    dense = Convolution(1, 1, 1, 512, 1000, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, dense=True)
    assert dense.flops == 2 * 512 * 1000 and "dense" in dense.name


def test_ratios_are_of_what_a_network_gets() -> None:
    rows = [row(estimate=4.0, tuned=2.0, cudnn=1.0, stock=8.0), row(estimate=2.0, cudnn=4.0), row(cudnn=1.0)]
    found = summary(rows)
    assert found["of_cudnn"] == pytest.approx(1.0) and found["least_of_cudnn"] == pytest.approx(0.5)
    assert found["estimate_of_cudnn"] == pytest.approx((0.25 * 2.0) ** 0.5)
    assert found["of_stock"] == pytest.approx(4.0)
    assert found["estimate_over_tuned"] == pytest.approx(2.0) and found["most_estimate_over_tuned"] == pytest.approx(
        2.0
    )
    assert summary([]) == {}
