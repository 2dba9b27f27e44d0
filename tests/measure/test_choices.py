"""Which settings a device is offered, and when one is taken."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.device.generic import generic_profile
from tvm_codl.device.profile import Cluster, DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.measure.choices import check_settings, choose, core_sets, offered, race, varied
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.records.settings import DEFAULT, Settings

CLUSTERS = (Cluster((0, 1, 2, 3), 1800), Cluster((4, 5, 6), 2400), Cluster((7,), 2900))
PHONE = DeviceProfile(
    "phone", "aarch64", "cores", tuple(range(8)), "llvm", "GPU", "opencl", clusters=CLUSTERS, float16=True
)


def plan(*placements: Placement) -> Plan:
    return Plan("net", "phone", tuple(PlannedOperator(i, f"op{i}", p) for i, p in enumerate(placements)))


SPLIT = plan(Placement("split", "height", 3))


class Phone:
    """Takes a time that the settings decide, times what the round brings to all of them alike, times noise."""

    def __init__(self, ms: object, noise: float = 0.0, seed: int = 0) -> None:
        self.ms, self.noise, self.rng, self.runs = ms, noise, np.random.default_rng(seed), 0

    def __call__(self, wanted: list[Settings], rounds: int) -> dict[Settings, list[float]]:
        found: dict[Settings, list[float]] = {settings: [] for settings in wanted}
        for _ in range(rounds):
            drift = float(np.exp(self.rng.normal(0, 0.3)))
            for settings in wanted:
                self.runs += 1
                found[settings].append(self.ms(settings) * drift * float(np.exp(self.rng.normal(0, self.noise))))
        return found


def test_a_device_is_offered_what_it_can_do_and_the_plan_can_feel() -> None:
    offers = offered(PHONE, SPLIT)
    assert offers["flush_every"] == [1, 4, 16] and offers["gpu_float"] == ["float16"]
    assert offers["cpu_threads"] == [1, 2, 3, 4, 5, 6, 7]
    assert offers["cpu_cores"] == [(0, 1, 2, 3), (4, 5, 6), (7,), (4, 5, 6, 7)]
    assert "gpu_memory" not in offers
    assert set(offered(PHONE, plan(Placement("cpu")))) == {"cpu_cores", "cpu_threads"}
    assert set(offered(PHONE, plan(Placement("gpu")))) == {"flush_every", "gpu_float"}


def images(cpu_target: str, side: int = 8192) -> DeviceProfile:
    return msgspec.structs.replace(PHONE, cpu_target=cpu_target, images=side > 0, image2d=(side, side))


def test_images_are_offered_where_a_vector_is_a_pixel() -> None:
    arm, wide = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon", "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"
    for phone in (images(arm), images(wide)):
        assert offered(phone, SPLIT)["gpu_memory"] == ["image"]
        check_settings(Settings(gpu_memory="image"), phone)
    # A CPU that plays a GPU has vectors of its own width.
    played = msgspec.structs.replace(images(wide), gpu_name="pocl-cpu", gpu_cores=(7,))
    # One with local memory shares weights there.
    discrete = msgspec.structs.replace(images(wide), gpu_name="NVIDIA H200", unified_memory=False)
    for phone, why in ((played, "a vector of four"), (discrete, ""), (images(arm, 0), "reports no images")):
        assert "gpu_memory" not in offered(phone, SPLIT)
        with pytest.raises(UserError, match=f"read no images[^$]*{why}"):
            check_settings(Settings(gpu_memory="image"), phone)


def test_one_core_and_no_float16_leave_the_flush_period() -> None:
    one = msgspec.structs.replace(PHONE, cpu_cores=(0,), clusters=(Cluster((0, 1)),), float16=False)
    assert set(offered(one, SPLIT)) == {"flush_every"}


def test_cores_that_are_not_the_cpus_are_not_offered() -> None:
    half = msgspec.structs.replace(PHONE, cpu_cores=(0, 1, 4))
    assert core_sets(half) == [(0, 1), (4,)]
    for cores in core_sets(half):
        check_settings(Settings(cpu_cores=cores), half)


@given(st.floats(0.0, 0.05), st.integers(0, 1000))
def test_what_makes_no_difference_keeps_the_default(noise: float, seed: int) -> None:
    """Five offers, each of which would have to look faster by two standard errors: rarely, and then by little."""
    chosen, ratios = choose(offered(PHONE, SPLIT), Phone(lambda settings: 10.0, noise, seed))
    if noise == 0:
        assert chosen == DEFAULT
    assert all(r.median > 1 - 6 * noise - 1e-9 for r in ratios)


def test_drift_alone_changes_nothing() -> None:
    assert choose(offered(PHONE, SPLIT), Phone(lambda settings: 10.0))[0] == DEFAULT


@given(st.integers(0, 1000))
def test_what_is_clearly_faster_is_taken_in_every_field(seed: int) -> None:
    def ms(settings: Settings) -> float:
        fast = (settings.flush_every == 4, settings.gpu_float == "float16", settings.cpu_cores == (4, 5, 6, 7))
        return 10.0 * 0.8 ** sum(fast) * (0.85 if settings.cpu_threads == 3 else 1.0)

    chosen, _ = choose(offered(PHONE, SPLIT), Phone(ms, 0.01, seed))
    assert chosen == Settings(4, 3, (4, 5, 6, 7), "float16")


def test_a_gain_below_the_doubt_or_a_hundredth_is_none() -> None:
    others = [Settings(1), Settings(4)]
    assert not any(r.clear for r in race(DEFAULT, others, Phone(lambda s: 9.95 if s.flush_every == 4 else 10.0)))
    assert [r.clear for r in race(DEFAULT, others, Phone(lambda s: 9.8 if s.flush_every == 4 else 10.0))] == [
        False,
        True,
    ]


def test_the_slower_half_is_measured_less() -> None:
    others = [Settings(n) for n in range(1, 9)]
    ratios = race(DEFAULT, others, Phone(lambda s: 10.0 - s.flush_every))
    counts = [r.n for r in ratios]
    assert counts == sorted(counts) and counts[0] < counts[-1]


def test_a_value_that_the_others_forbid_is_left_out() -> None:
    assert varied(Settings(cpu_cores=(0, 1)), "cpu_threads", 3) is None
    assert varied(Settings(cpu_cores=(0, 1)), "cpu_threads", 2) == Settings(cpu_threads=2, cpu_cores=(0, 1))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(gpu_memory="image"), "reports no images"),
        (Settings(gpu_float="float16"), "cannot compute in float16"),
        (Settings(cpu_cores=(1, 9)), "core 9 is none of the CPU's"),
        (Settings(cpu_threads=9), "9 CPU threads are more"),
    ],
)
def test_what_the_device_cannot_do_is_refused_with_words(settings: Settings, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_settings(settings, msgspec.structs.replace(PHONE, float16=False))
    check_settings(Settings(16, 8, gpu_float="float16"), PHONE)


def test_a_library_for_any_phone_may_have_the_settings_that_one_phone_was_given() -> None:
    anyone = generic_profile("android-arm64")
    check_settings(Settings(16, 4, (4, 5, 6, 7), gpu_memory="image"), anyone)
    check_settings(Settings(gpu_float="float16"), anyone)
