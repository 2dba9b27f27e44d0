from __future__ import annotations

import numpy as np
import pytest

from tests.unit.cost.latency import network, pieces
from tvm_codl.cost.evaluation.baselines import BASELINES, Amounts, Codl, Flops, Roofline


def amounts(count: int = 200) -> Amounts:
    random = np.random.default_rng(0)
    flops, moved = 10 ** random.uniform(5, 9, count), 10 ** random.uniform(3, 7, count)
    sizes = [random.integers(1, 64, count).astype(float) for _ in range(4)]
    kernel, stride = random.choice([1.0, 3.0], count), random.choice([1.0, 2.0], count)
    return Amounts(flops, moved, *sizes, kernel, stride, *(random.integers(1, 50, count).astype(float) for _ in "us"))


def test_flops_finds_a_line() -> None:
    known = amounts()
    ms = 3e-7 * known.flops + 0.5
    assert Flops.fit(known, np.log(ms)).predict(known) == pytest.approx(np.log(ms), abs=1e-6)


def test_roofline_finds_both_roofs() -> None:
    known = amounts()
    log_ms = np.log(np.maximum(known.flops / 1e6, known.bytes / 1e4) + 0.05)
    assert np.median(np.abs(Roofline.fit(known, log_ms).predict(known) - log_ms)) < 0.02


def test_codl_finds_a_unit_time_that_is_linear_in_the_blocks() -> None:
    known = amounts()
    unit = 0.01 + 0.002 * np.ceil(known.in_c / 4) + 0.003 * known.stride
    log_ms = np.log(known.units * known.steps * unit)
    assert Codl.fit(known, log_ms).predict(known) == pytest.approx(log_ms, abs=1e-6)


@pytest.mark.parametrize("name", BASELINES)
def test_predictions_are_times_whatever_is_asked(name: str) -> None:
    known = amounts(30)
    log_ms = np.log(np.random.default_rng(1).uniform(0.01, 100, 30))
    predicted = BASELINES[name].fit(known, log_ms).predict(amounts(500))
    assert predicted.shape == (500,)
    assert np.all(np.isfinite(predicted))


def test_workloads_have_units_in_series() -> None:
    found = pieces(network(), 0)
    cpu, gpu = Amounts.of(found, "cpu"), Amounts.of(found, "gpu", compute_units=2)
    assert np.all(cpu.units >= 1) and np.all(gpu.units >= 1)
    first = found[0]
    assert gpu.units[0] == np.ceil(np.ceil(np.ceil(first.out_c / 4) * np.ceil(first.out_w / 5) * first.out_h / 64) / 2)
    assert cpu.flops.tolist() == [w.flops for w in found]
    assert gpu[np.array([1], dtype=np.intp)].flops.tolist() == [found[1].flops]
