from __future__ import annotations

import numpy as np
import pytest

from tvm_codl.cost.evaluation.metrics import metrics
from tvm_codl.cost.learned import deviations
from tvm_codl.errors import CheckFailed


def test_metrics_by_hand() -> None:
    measured = np.array([1.0, 1.0, 2.0, 4.0])
    found = metrics(measured, np.array([1.04, 0.92, 2.36, 2.0]), np.full(4, 0.1))
    assert (found.n, found.within_5, found.within_10, found.within_20) == (4, 0.25, 0.5, 0.75)
    assert found.median_error == pytest.approx((0.08 + 0.18) / 2)
    assert found.p90_error == pytest.approx(0.18 + 0.7 * (0.5 - 0.18))
    # log-errors 0.04, 0.08, 0.17 and 0.69 against 0.067, 0.128 and 0.164
    assert (found.coverage_50, found.coverage_80, found.coverage_90) == (0.25, 0.5, 0.5)


def test_a_normal_interval() -> None:
    assert deviations(0.9) == pytest.approx(1.6449, abs=1e-4)


@pytest.mark.parametrize("predicted", [[1.0, float("nan")], [1.0, 0.0], [1.0, float("inf")], [1.0]])
def test_what_is_no_prediction_is_refused(predicted: list[float]) -> None:
    with pytest.raises(CheckFailed):
        metrics(np.ones(2), np.array(predicted))
