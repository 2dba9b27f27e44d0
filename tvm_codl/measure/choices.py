"""The settings that a device offers a plan, and the choice among them by measured times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.kernels.toolchain import reads_images
from tvm_codl.measure.context import Log
from tvm_codl.plan.plan import Plan
from tvm_codl.records.settings import DEFAULT, Settings

#: Measures some settings in turn, so many rounds: milliseconds by settings, of which the n-th are of one round.
Run = Callable[[Sequence[Settings], int], Mapping[Settings, Sequence[float]]]

FLUSH_PERIODS = (1, 4, 16)
#: Rounds of the stages; after each the slower half goes.
ROUNDS = (3, 5, 8)
#: A setting must be faster than the one that it replaces by this share, and by two standard errors.
GAIN = 0.01


class Ratio(msgspec.Struct, frozen=True):
    """A setting's time as a share of the default's in the same round: the median, and its standard error."""

    settings: Settings
    median: float
    error: float
    n: int

    @property
    def clear(self) -> bool:
        return self.median < 1 - max(GAIN, 2 * self.error)

    def __str__(self) -> str:
        return f"{self.settings.words()} takes {self.median:.3f} ± {self.error:.3f} of the time"


def check_settings(settings: Settings, profile: DeviceProfile) -> None:
    """Raises :class:`UserError` for settings that the device does not support, or that this version cannot build.

    A generic profile (:mod:`tvm_codl.device.generic`) names no cores: the phone itself checks the rest.
    """
    if settings.gpu_memory == "image" and not reads_images(profile):
        raise UserError(
            f"kernels for {profile.gpu_name or 'the GPU'} read no images",
            f"images of {profile.image2d[0]} x {profile.image2d[1]} pixels, and a pixel is a vector of four"
            if profile.images
            else f"{profile.name} reports no images",
            'use "gpu_memory": "buffer"',
        )
    if not profile.cpu_cores:
        return
    if settings.gpu_float == "float16" and not profile.float16:
        raise UserError(
            f"{profile.gpu_name or 'the GPU'} cannot compute in float16",
            f"{profile.name} does not report cl_khr_fp16",
            'use "gpu_float": "float32"',
        )
    strange = sorted(set(settings.cpu_cores) - set(profile.cpu_cores))
    if strange:
        raise UserError(
            f"core {strange[0]} is none of the CPU's",
            f"{profile.name} gives the CPU the cores {list(profile.cpu_cores)}",
            "name some of these in cpu_cores, or none",
        )
    if settings.cpu_threads > len(profile.cpu_cores):
        raise UserError(
            f"{settings.cpu_threads} CPU threads are more than there are cores",
            f"{profile.name} gives the CPU {len(profile.cpu_cores)} cores",
            "give a smaller cpu_threads, or 0 for as many as there are",
        )


def offered(profile: DeviceProfile, plan: Plan) -> dict[str, list[object]]:
    """By field of :class:`Settings`: the values besides the default that the device supports and that affect the plan."""
    used = {o.placement.on for o in plan.operators}
    offers: dict[str, list[object]] = {}
    if used & {"gpu", "split"}:
        offers["flush_every"] = list(FLUSH_PERIODS)
        if profile.float16:
            offers["gpu_float"] = ["float16"]
        if reads_images(profile):
            offers["gpu_memory"] = ["image"]
    if used & {"cpu", "split"}:
        offers["cpu_cores"] = list(core_sets(profile))
        offers["cpu_threads"] = list(range(1, len(profile.cpu_cores)))
    return {field: values for field, values in offers.items() if values}


def core_sets(profile: DeviceProfile) -> list[tuple[int, ...]]:
    """Each cluster of the CPU's cores by itself, and the faster clusters together; none where there is one cluster."""
    inside = [tuple(sorted(set(c.cores) & set(profile.cpu_cores))) for c in profile.clusters]
    clusters = [cores for cores in inside if cores]
    if len(clusters) < 2:
        return []
    faster = [tuple(sorted(sum(clusters[i:], ()))) for i in range(1, len(clusters) - 1)]
    return [*clusters, *faster]


def choose(offers: Mapping[str, Sequence[object]], run: Run, log: Log = lambda _: None) -> tuple[Settings, list[Ratio]]:
    """The settings to take, and every ratio that was measured.

    One field after the other is varied from what was chosen so far, and changes only where the gain is clear.
    """
    chosen: Settings = DEFAULT
    measured: list[Ratio] = []
    for field, values in offers.items():
        others = [made for value in values if (made := varied(chosen, field, value)) is not None]
        if not others:
            continue
        ratios = race(chosen, others, run)
        measured += ratios
        best = min((r for r in ratios if r.clear), key=lambda r: r.median, default=None)
        log(f"{field}: " + "; ".join(map(str, ratios)) + f" -> {best.settings.words() if best else 'stays'}")
        if best is not None:
            chosen = best.settings
    return chosen, measured


def varied(settings: Settings, field: str, value: object) -> Settings | None:
    """``settings`` with another value in one field; None where the others do not allow it."""
    try:
        return Settings(**{**msgspec.structs.asdict(settings), field: value})
    except ValueError:
        return None


def race(default: Settings, others: Sequence[Settings], run: Run) -> list[Ratio]:
    """Each of ``others`` against ``default`` in the same rounds; the slower half is measured less (successive halving)."""
    samples: dict[Settings, list[float]] = {each: [] for each in others}
    of_default: dict[Settings, list[float]] = {each: [] for each in others}
    racing = list(others)
    for rounds in ROUNDS:
        times = run([default, *racing], rounds)
        for each in racing:
            samples[each] += times[each]
            of_default[each] += times[default]
        racing.sort(key=lambda each: ratio(each, samples[each], of_default[each]).median)
        racing = racing[: math.ceil(len(racing) / 2)]
    return [ratio(each, samples[each], of_default[each]) for each in others]


def ratio(settings: Settings, times: Sequence[float], default: Sequence[float]) -> Ratio:
    """Compares times of the same round, so that a slow round changes nothing.

    The standard error of a median is 1.25 times that of a mean (normal errors).
    """
    logs = np.log(np.asarray(times)) - np.log(np.asarray(default))
    error = 1.25 * float(np.std(logs, ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    middle = math.exp(float(np.median(logs)))
    return Ratio(settings, middle, middle * error, len(logs))
