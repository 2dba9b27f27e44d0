from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from tvm_codl.cost.contention import Beside, Contention, Side, usual_contention

times = st.floats(0.001, 100.0)
laws = st.builds(
    Contention,
    st.builds(Side, st.floats(0.0, 2.0)),
    st.builds(Side, st.floats(0.0, 2.0)),
    st.just(0.0) | st.floats(0.01, 10.0),
)


def measured(law: Contention, sizes: tuple[float, ...], speed: float = 2e7) -> list[Beside]:
    """Streams and what stays in a cache, all of them read at ``speed`` bytes per ms alone."""
    found = []
    for cpu in sizes:
        for gpu in sizes:
            alone = cpu / speed, gpu / speed
            traffic = [float(law.cpu.beyond(size)) / ms for size, ms in zip((cpu, gpu), alone, strict=True)]
            slow = law.factors(*traffic)
            found += [
                Beside("cpu", cpu, alone[0], gpu, alone[1], alone[0] * slow[0]),
                Beside("gpu", gpu, alone[1], cpu, alone[0], alone[1] * slow[1]),
            ]
    return found


SIZES = (1e5, 4e6, 6e7)
LAW = Contention(Side(0.1, 2e7), Side(0.05, 2e7), 2.5e7)


def test_a_law_is_found_again_in_what_it_makes() -> None:
    found = Contention.fit(measured(LAW, SIZES))
    assert (found.cpu.always, found.gpu.always, found.bandwidth) == pytest.approx((0.1, 0.05, 2.5e7), rel=0.03)
    assert SIZES[1] < found.cpu.cache == found.gpu.cache < SIZES[2]


@given(st.integers(0, 15), st.sampled_from([0.5, 3.0]))
@settings(max_examples=examples(20))
def test_a_disturbed_measurement_changes_little(which: int, factor: float) -> None:
    """But for one of the two streams beside each other, each the median of rounds."""
    samples = measured(LAW, SIZES)
    samples[which] = replace(samples[which], busy_ms=samples[which].busy_ms * factor)
    found = Contention.fit(samples)
    assert (found.cpu.always, found.gpu.always) == pytest.approx((0.1, 0.05), abs=0.06)
    stream = 2e7
    assert found.factors(stream, stream) == pytest.approx(LAW.factors(stream, stream), rel=0.1)


def test_two_streams_share_a_bandwidth_that_one_does_not_fill() -> None:
    """As on the reference phone: two that each read 24 GB/s alone read 17 GB/s each beside one another."""
    law = Contention(bandwidth=35.0)
    assert law.factors(24.0, 24.0) == pytest.approx((48 / 35, 48 / 35))
    assert law.factors(24.0, 10.0) == (1.0, 1.0)
    # Half of a matrix on either takes less than all of it on one, and not half as long.
    cpu, gpu = law.together([0.0, 2.0], [4.0, 2.0], [0.0, 48.0], [96.0, 48.0])
    assert np.maximum(cpu, gpu) == pytest.approx([4.0, 2.0 * 48 / 35])


def test_bytes_that_stay_in_a_cache_disturb_nobody() -> None:
    assert Side(cache=8.0).beyond([0.0, 8.0, 9.0]).tolist() == [0.0, 0.0, 9.0]
    assert Side().beyond(3.0) == 3.0


def test_nobody_is_helped_by_the_others_work_and_nothing_measured_is_no_slow_down() -> None:
    found = Contention.fit([Beside("cpu", 1.0, 1.0, 1.0, 1.0, 0.9), Beside("cpu", 2.0, 1.0, 2.0, 1.0, 0.8)])
    assert (found.cpu.always, found.gpu.always) == (0.0, 0.0)
    assert found.bandwidth >= 3.0 or not found.bandwidth
    assert Contention.fit([]) == Contention()
    assert Contention().factors(3.0, 5.0) == (1.0, 1.0)


def test_both_have_at_least_the_bandwidth_that_one_has_alone() -> None:
    """A measurement that was disturbed throughout does not make a processor slower than it was seen to be."""
    samples = [Beside(on, 6e7, 3.0, 6e7, 3.0, 15.0) for on in ("cpu", "gpu")]
    assert Contention.fit(samples).bandwidth == pytest.approx(2e7)


@given(laws, times, times, st.floats(0.0, 50.0), st.floats(0.0, 50.0))
def test_together_nobody_is_faster_than_alone_nor_slower_than_slowed_all_the_time(
    law: Contention, cpu_ms: float, gpu_ms: float, cpu_bytes: float, gpu_bytes: float
) -> None:
    slow = law.factors(cpu_bytes / cpu_ms, gpu_bytes / gpu_ms)
    assert [float(f) for f in law.slow_down(cpu_bytes / cpu_ms, gpu_bytes / gpu_ms)] == pytest.approx(slow)
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


def test_of_several_the_middle_one_is_believed_and_no_limit_is_the_widest() -> None:
    found = [Contention(Side(0.1 * i, float(i)), Side(), bandwidth) for i, bandwidth in enumerate((0.0, 3.0, 2.0))]
    assert usual_contention(found) == Contention(Side(0.1, 1.0), Side(), 3.0)
    assert usual_contention(found[:2]) == Contention(Side(0.0, 0.0), Side(), 0.0)
    assert usual_contention(found[2:]) == found[2]


def test_values_that_mean_nothing_are_refused_in_files_too() -> None:
    for wrong in ({"always": -0.1}, {"cache": float("nan")}):
        with pytest.raises(ValueError, match="finite"):
            Side(**wrong)
    with pytest.raises(ValueError, match="bandwidth"):
        Contention(bandwidth=-1.0)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"cpu": {"always": -1}}', type=Contention)
