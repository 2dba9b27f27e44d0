"""A plan's settings, chosen by running its library on the phone with each of those that the device can take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tvm

from tvm_codl.errors import CheckFailed, UserError
from tvm_codl.kernels.toolchain import Toolchain, toolchain
from tvm_codl.measure.bench import FLOAT16_TOLERANCE, TOLERANCE, errors
from tvm_codl.measure.choices import Ratio, check_settings, choose, offered, varied
from tvm_codl.measure.interleave import RUNS, calm_down
from tvm_codl.measure.workflow import Log, Prepared, library_for, open_library
from tvm_codl.plan.plan import Plan
from tvm_codl.records.settings import DEFAULT, Settings
from tvm_codl.runtime.comodule import CoModule

#: A sample is the mean of as many runs as take that long, or one: a network of 0.1 ms is timed as well as one of 100.
SAMPLE_MS = 5.0


class Bench:
    """The libraries of a plan on a phone, one for each type and each memory of the GPU, run with one setting after the other.

    After each change the first sample, which finds caches and driver as another setting left them, is not counted.
    """

    def __init__(self, prepared: Prepared, plan: Plan, phone: Any, tools: Toolchain, log: Log) -> None:
        self.inputs = prepared.model.sample_inputs()
        self.profile = phone.profile
        self.offers = offered(phone.profile, plan)
        self.modules: dict[str, CoModule] = {}
        self._open = lambda one: open_library(
            library_for(prepared, msgspec.structs.replace(plan, settings=one), tools, log), phone
        )
        self._log = log
        self.modules[DEFAULT.words()] = self._open(DEFAULT)
        wanted = self.modules[DEFAULT.words()].run(self.inputs)
        for field, bound in (("gpu_float", FLOAT16_TOLERANCE), ("gpu_memory", TOLERANCE)):
            others = [varied(DEFAULT, field, value) for value in self.offers.pop(field, ())]
            if right := [one for one in others if one is not None and self._right(one, wanted, bound)]:
                self.offers[field] = [getattr(one, field) for one in right]
        once = max(float(np.median(module.benchmark(1, 5))) for module in self.modules.values())
        self.number = math.ceil(SAMPLE_MS / max(once, 1e-3))
        calm_down()

    def _right(self, one: Settings, wanted: list[np.ndarray], bound: float) -> bool:
        """Whether the library of these settings runs on the phone, with an answer that is as near as ``bound``."""
        try:
            module = self._open(one)
            found = largest_error(module.run(self.inputs), wanted)
        except (UserError, tvm.error.TVMError) as error:
            self._log(f"{one.words()} is not offered: {str(error).strip().splitlines()[-1][:200]}")
            return False
        self._log(f"{one.words()} changes an output by at most {found:.2e} of its largest value")
        if found > bound:
            self._log(f"that is more than {bound:g}: it is not offered")
            return False
        self.modules[one.words()] = module
        return True

    def run(self, wanted: Sequence[Settings], rounds: int) -> Mapping[Settings, Sequence[float]]:
        samples: dict[Settings, list[float]] = {settings: [] for settings in wanted}
        for _ in range(rounds):
            for settings in wanted:
                module = self.modules[library_of(settings).words()]
                module.apply(settings)
                samples[settings] += module.benchmark(self.number, 1 + RUNS)[1:]
        return samples


def library_of(settings: Settings) -> Settings:
    """What of ``settings`` decides what a library holds; the rest is chosen when it runs."""
    return Settings(gpu_float=settings.gpu_float, gpu_memory=settings.gpu_memory)


def largest_error(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest difference of any output, as a share of that output's largest magnitude; infinite where an output
    holds what is no number, as those do that float16 cannot hold."""
    try:
        return errors(found, wanted)[1]
    except CheckFailed:
        return math.inf


def with_settings(
    prepared: Prepared, plan: Plan, phone: Any, tuning_records: Path | None = None, log: Log = lambda _: None
) -> tuple[Plan, list[Ratio]]:
    """``plan`` with the settings under which its library ran fastest on ``phone``, and every ratio that was measured.

    The default stays where nothing else is clearly faster.  Raises :class:`DeviceError` where the phone goes away.
    """
    bench = Bench(prepared, plan, phone, toolchain(phone.profile, tuning_records), log)
    chosen, ratios = choose(bench.offers, bench.run, log)
    log(f"settings: {chosen.words()}")
    return msgspec.structs.replace(plan, settings=chosen), ratios


def settings_option(text: str) -> Settings | None:
    """What ``--settings`` says: ``default`` the defaults, ``auto`` None, for they are to be measured, else a JSON file.

    Raises :class:`UserError` for a file that holds no settings.
    """
    if text == "auto":
        return None
    return DEFAULT if text == "default" else read_settings(Path(text))


def settled(
    prepared: Prepared, plan: Plan, wanted: Settings | None, phone: Any, tuning_records: Path | None, log: Log
) -> Plan:
    """``plan`` with the settings ``wanted``, or where that is None, with those that are measured to be the fastest.

    Raises :class:`UserError` for settings that the phone cannot do.
    """
    if wanted is None:
        return with_settings(prepared, plan, phone, tuning_records, log)[0]
    check_settings(wanted, phone.profile)
    return msgspec.structs.replace(plan, settings=wanted)


def read_settings(path: Path) -> Settings:
    """Raises :class:`UserError` where the file cannot be read or holds no settings."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except OSError as error:
        raise UserError(
            f"the settings {path} cannot be read",
            error.strerror or str(error),
            "--settings auto, default, or a JSON file",
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fields = ", ".join(Settings.__struct_fields__)
        raise UserError(f"{path} holds no settings", str(error), f"a JSON object with any of {fields}") from error
