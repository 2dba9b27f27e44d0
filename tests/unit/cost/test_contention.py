from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.cost.contention import Beside, Contention, Side

times = st.floats(0.001, 100.0)
sides = st.builds(Side, st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.floats(0.1, 10.0))


def sample(processor: str, own: float, other: float, ratio: float) -> Beside:
    return Beside(processor, own, 1.0, other, 1.0, ratio)  # type: ignore[arg-type]


def test_a_law_is_found_again_in_what_it_makes() -> None:
    law = Contention(Side(0.1, 0.5, 8.0), Side(0.05, 0.9, 4.0))
    samples = []
    for cpu in (0.1, 2.0, 8.0):
        for gpu in (0.1, 1.0, 4.0):
            slow_cpu, slow_gpu = law.slow_down(cpu, gpu)
            samples += [sample("cpu", cpu, gpu, float(slow_cpu)), sample("gpu", gpu, cpu, float(slow_gpu))]
    found = Contention.fit(samples)
    for side, wanted in ((found.cpu, law.cpu), (found.gpu, law.gpu)):
        assert (side.always, side.memory, side.peak) == pytest.approx((wanted.always, wanted.memory, wanted.peak))


def test_bytes_that_stay_in_a_cache_disturb_nobody() -> None:
    """As on the reference phone: only what both fetch from memory makes them slower."""
    small, large = 1e6, 32e6
    samples = [
        Beside(on, own, own / 2e7, other, other / 2e7, own / 2e7 * (1.5 if own == other == large else 1.0))
        for on in ("cpu", "gpu")
        for own in (small, large)
        for other in (small, large)
    ]
    found = Contention.fit(samples)
    assert small < found.cpu.cache < large
    cpu, gpu = found.together(1.0, 1.0, [small, large], [large, large])
    assert cpu == pytest.approx([1.0, 1.5], rel=0.01)
    assert gpu == pytest.approx([1.0, 1.5], rel=0.01)


def test_nobody_is_helped_by_the_others_work_and_nothing_measured_is_no_slow_down() -> None:
    found = Contention.fit([sample("cpu", 1.0, 1.0, 0.9), sample("cpu", 2.0, 2.0, 0.8)])
    assert (found.cpu.always, found.cpu.memory) == (0.0, 0.0)
    assert Contention.fit([]) == Contention()
    assert Contention().factors(3.0, 5.0) == (1.0, 1.0)


@given(sides, sides, times, times, st.floats(0.0, 50.0), st.floats(0.0, 50.0))
def test_together_nobody_is_faster_than_alone_nor_slower_than_slowed_all_the_time(
    cpu: Side, gpu: Side, cpu_ms: float, gpu_ms: float, cpu_bytes: float, gpu_bytes: float
) -> None:
    law = Contention(cpu, gpu)
    slow = law.factors(float(cpu.traffic(cpu_bytes, cpu_ms)), float(gpu.traffic(gpu_bytes, gpu_ms)))
    ends = [float(end) for end in law.together(cpu_ms, gpu_ms, cpu_bytes, gpu_bytes)]
    for end, alone, factor in zip(ends, (cpu_ms, gpu_ms), slow, strict=True):
        assert alone * (1 - 1e-9) <= end <= alone * factor * (1 + 1e-9)
    # Whoever is done first was slowed all the time.
    first = int(np.argmin(ends))
    assert ends[first] == pytest.approx((cpu_ms, gpu_ms)[first] * slow[first])


def test_a_part_that_is_not_there_or_cannot_run_slows_nobody() -> None:
    law = Contention(Side(1.0), Side(1.0))
    cpu, gpu = law.together([2.0, 0.0, np.inf, 2.0], [0.0, 3.0, 3.0, 2.0], 0.0, 0.0)
    assert cpu.tolist() == [2.0, 0.0, np.inf, 4.0]
    assert gpu.tolist() == [0.0, 3.0, 3.0, 4.0]


def test_values_that_mean_nothing_are_refused_in_files_too() -> None:
    for wrong in ({"always": -0.1}, {"memory": float("nan")}, {"peak": 0.0}):
        with pytest.raises(ValueError, match="finite"):
            Side(**wrong)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"cpu": {"always": -1}}', type=Contention)
