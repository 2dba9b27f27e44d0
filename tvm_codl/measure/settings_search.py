"""A plan's settings, chosen by running its library on the phone with each of those that the device can take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
import tvm

from tvm_codl.errors import UserError
from tvm_codl.measure.answers import FLOAT16_TOLERANCE, TOLERANCE, answer_errors
from tvm_codl.measure.choices import Ratio, check_settings, choose, offered, varied
from tvm_codl.measure.context import Context
from tvm_codl.measure.interleave import RUNS, Race, calm_down
from tvm_codl.measure.plan_libraries import open_plans
from tvm_codl.plan.plan import Plan
from tvm_codl.records.settings import DEFAULT, Settings
from tvm_codl.relay.prepared import Prepared
from tvm_codl.runtime.comodule import CoModule, Watched

#: A sample is the mean of as many runs as take that long, or one: a network of 0.1 ms is timed as well as one of 100.
SAMPLE_MS = 5.0


class SettingLibraries:
    """The libraries of a plan on a phone, one for each type and each memory of the GPU, run with one setting after the other.

    After each change the first sample, which finds caches and driver as another setting left them, is not counted.
    """

    def __init__(self, prepared: Prepared, plan: Plan, context: Context) -> None:
        self.inputs = prepared.samples
        self.offers = offered(context.profile, plan)
        self.modules: dict[str, CoModule] = {}
        self._prepared, self._plan, self._context = prepared, plan, context
        self.modules[DEFAULT.words()] = self._open(DEFAULT)
        wanted = self.modules[DEFAULT.words()].run(self.inputs)
        for field, bound in (("gpu_float", FLOAT16_TOLERANCE), ("gpu_memory", TOLERANCE)):
            others = [varied(DEFAULT, field, value) for value in self.offers.pop(field, ())]
            if right := [each for each in others if each is not None and self._is_right(each, wanted, bound)]:
                self.offers[field] = [getattr(each, field) for each in right]
        once = max(float(np.median(module.benchmark(1, 5))) for module in self.modules.values())
        self.number = math.ceil(SAMPLE_MS / max(once, 1e-3))
        calm_down()

    def _open(self, settings: Settings) -> CoModule:
        plan = msgspec.structs.replace(self._plan, settings=settings)
        return open_plans(self._prepared, {"": plan}, self._context)[""]

    def _is_right(self, settings: Settings, wanted: list[np.ndarray], bound: float) -> bool:
        """Whether the library of these settings runs on the phone, with an answer that is as near as ``bound``."""
        try:
            module = self._open(settings)
            error = answer_errors(module.run(self.inputs), wanted, self._prepared.quanta)[1]
        except (UserError, tvm.error.TVMError) as failure:
            self._context.log(f"{settings.words()} is not offered: {str(failure).strip().splitlines()[-1][:200]}")
            return False
        self._context.log(f"{settings.words()} changes an output by at most {error:.2e} of its largest value")
        if error > bound:
            self._context.log(f"that is more than {bound:g}: it is not offered")
            return False
        self.modules[settings.words()] = module
        return True

    def run(self, wanted: Sequence[Settings], rounds: int) -> Mapping[Settings, Sequence[float]]:
        turns = {str(number): partial(self._turn, settings) for number, settings in enumerate(wanted)}
        race = Race(turns, self.number, usual=self._context.usual_work)
        samples = dict(zip(wanted, race.run(rounds).values(), strict=True))
        if race.words:
            self._context.log(race.words)
        return samples

    def _turn(self, settings: Settings) -> Watched:
        module = self.modules[library_of(settings).words()]
        module.apply(settings)
        return module.watch(self.number, 1 + RUNS)


def library_of(settings: Settings) -> Settings:
    """What of ``settings`` decides what a library holds; the rest is chosen when it runs."""
    return Settings(gpu_float=settings.gpu_float, gpu_memory=settings.gpu_memory)


def search_settings(prepared: Prepared, plan: Plan, context: Context) -> tuple[Plan, list[Ratio]]:
    """``plan`` with the settings under which its library ran fastest on the phone, and every ratio that was measured.

    The default stays where nothing else is clearly faster.  Raises :class:`DeviceError` where the phone goes away.
    """
    libraries = SettingLibraries(prepared, plan, context)
    chosen, ratios = choose(libraries.offers, libraries.run, context.log)
    context.log(f"settings: {chosen.words()}")
    return msgspec.structs.replace(plan, settings=chosen), ratios


def apply_settings(prepared: Prepared, plan: Plan, settings: Settings | None, context: Context) -> Plan:
    """``plan`` with ``settings``, or where these are None, with the fastest that are measured.

    Raises :class:`UserError` for settings that the phone cannot do.
    """
    if settings is None:
        return search_settings(prepared, plan, context)[0]
    check_settings(settings, context.profile)
    return msgspec.structs.replace(plan, settings=settings)
