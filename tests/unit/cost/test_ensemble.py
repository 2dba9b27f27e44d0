from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from tvm_codl.cost.ensemble import QUICK, Ensemble, Settings
from tvm_codl.cost.evaluation.metrics import holdout, metrics
from tvm_codl.errors import UserError

Rows = NDArray[np.float64]


def synthetic(count: int = 300, noise: float = 0.02) -> tuple[Rows, Rows]:
    """Rows (log2 of work, channels, units) and log-times with waves, a start-up time and noise."""
    random = np.random.default_rng(3)
    work, channels = random.uniform(6, 16, count), random.integers(1, 64, count)
    waves = np.ceil(channels / 8)
    ms = 0.02 + 2.0 ** (work - 12) * waves / 8
    rows = np.column_stack([work, np.log2(channels), waves])
    return rows, np.log(ms) + noise * random.standard_normal(count)


@pytest.fixture(scope="module")
def learned() -> tuple[Ensemble, Rows, Rows]:
    rows, log_ms = synthetic()
    training, test = holdout(range(len(rows)), 0.25, 0)
    model = Ensemble.fit(rows[training], log_ms[training], slopes={0: 0.5 * math.log(2)}, settings=QUICK)
    return model, rows[test], log_ms[test]


def test_it_learns_and_says_how_sure_it_is(learned: tuple[Ensemble, Rows, Rows]) -> None:
    model, rows, log_ms = learned
    predicted, sigma = model.predict(rows)
    found = metrics(np.exp(log_ms), np.exp(predicted), sigma)
    assert found.median_error < 0.04
    assert found.coverage_90 is not None and 0.75 <= found.coverage_90 <= 1.0
    assert np.all(sigma > 0)


def test_far_from_all_samples_it_is_less_sure(learned: tuple[Ensemble, Rows, Rows]) -> None:
    model, rows, _ = learned
    assert model.predict(rows + np.array([9.0, 5.0, 40.0]))[1].min() > np.median(model.predict(rows)[1])


def test_a_stored_one_predicts_the_same(learned: tuple[Ensemble, Rows, Rows]) -> None:
    model, rows, _ = learned
    text = msgspec.json.encode(model.to_json())
    again = Ensemble.from_json(msgspec.json.decode(text))
    for before, after in zip(model.predict(rows), again.predict(rows), strict=True):
        np.testing.assert_array_equal(before, after)
    assert msgspec.json.encode(again.to_json()) == text


@pytest.mark.parametrize("settings", [QUICK, msgspec.structs.replace(QUICK, points=0)])
def test_the_order_of_the_samples_does_not_matter(settings: Settings) -> None:
    rows, log_ms = synthetic(80)
    rows[40:60] = rows[:20]  # repeated measurements
    groups = [int(row[2]) for row in rows]
    shuffled = np.random.default_rng(1).permutation(len(rows))
    one = Ensemble.fit(rows, log_ms, groups, settings=settings)
    two = Ensemble.fit(rows[shuffled], log_ms[shuffled], [groups[i] for i in shuffled], settings=settings)
    for first, second in zip(one.predict(rows), two.predict(rows), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-9)


def test_predictions_do_not_depend_on_the_other_rows(learned: tuple[Ensemble, Rows, Rows]) -> None:
    model, rows, _ = learned
    np.testing.assert_allclose(model.predict(rows)[0][7:9], model.predict(rows[7:9])[0], rtol=1e-9)
    assert len(model.predict(rows[:0])[0]) == 0


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_samples_that_are_no_numbers_are_refused(wrong: float) -> None:
    rows, log_ms = synthetic(20)
    log_ms[3] = wrong
    with pytest.raises(UserError):
        Ensemble.fit(rows, log_ms, settings=QUICK)


def test_too_few_samples_are_refused() -> None:
    rows, log_ms = synthetic(7)
    with pytest.raises(UserError):
        Ensemble.fit(rows, log_ms, settings=QUICK)
