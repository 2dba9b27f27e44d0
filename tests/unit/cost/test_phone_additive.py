from __future__ import annotations

import numpy as np

from tests.unit.cost.test_phone_rows import conv
from tvm_codl.cost.phone_additive import AdditiveTime
from tvm_codl.cost.phone_features import flops, moved_bytes, phone_features


def test_a_sum_of_amounts_is_learned_from_few_and_no_price_is_negative() -> None:
    random = np.random.default_rng(0)
    operators = [
        conv(int(random.integers(7, 112)), int(random.integers(4, 512)), int(random.integers(4, 512)), 1)
        for _ in range(160)
    ]
    rows, names = phone_features(operators)
    log_ms = np.log([0.02 + flops(op) / 2e8 + sum(moved_bytes(op)) / 5e7 for op in operators])
    log_ms[:5] += 1.0  # five kernels that are exceptions
    model = AdditiveTime.fit(rows[:80], names, log_ms[:80])
    assert min(model.prices) >= 0.0
    error = np.abs(np.exp(model.predict(rows[80:], names) - log_ms[80:]) - 1.0)
    assert np.median(error) < 0.05
    assert np.quantile(error, 0.9) < 0.15
