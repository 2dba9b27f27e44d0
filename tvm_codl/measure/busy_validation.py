"""Busy validation: runs the plans of an adaptive library in turn while other threads compete for the CPU's cores.

How fast a plan is then depends on the scheduler of the phone's kernel, which no model here describes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from tvm_codl.errors import DeviceError
from tvm_codl.measure.interleave import calm_down, sample
from tvm_codl.plan.adaptive import StatePlan
from tvm_codl.runtime.comodule import CoModule

#: Rounds of all plans, and then of the better half.
ROUNDS = (4, 6)
#: Samples of one plan in a round, after one with cold caches.
RUNS = 6
#: A plan for a busy CPU is kept if it takes at most this share of the time of the first.
GAIN = 0.95


@contextlib.contextmanager
def compete(phone: Any, threads: int) -> Iterator[None]:
    """Runs ``threads`` threads that only count on the cores of the phone's CPU, until the block or the connection ends.

    Raises :class:`DeviceError` where the phone cannot start them.
    """
    try:
        competitor = phone.remote.get_function("codl.compete")(threads)
    except (AttributeError, tvm.error.TVMError) as error:
        raise DeviceError(
            "the phone cannot be made busy", f"its runtime starts no {threads} competing threads", "tvm-codl doctor"
        ) from error
    try:
        yield
    finally:
        competitor["stop"]()


def time_when_busy(module: CoModule, phone: Any, numbers: Collection[int]) -> dict[int, list[float]]:
    """Times in ms, by number, of the plans ``numbers`` of a library that has its inputs, while each of the CPU's threads
    has a competitor."""
    samples: dict[int, list[float]] = {number: [] for number in numbers}
    for number in numbers:
        module.fix_plan(number)
        module.benchmark(1, 2)
    calm_down()
    racing = list(numbers)
    try:
        for rounds in ROUNDS:
            for _ in range(rounds):
                # Runs can fall into step with the competitors' time slices, so each round starts new ones.
                with compete(phone, len(module.cpu_cores)):
                    for number in racing:
                        module.fix_plan(number)
                        samples[number] += sample(module, RUNS)
            racing = sorted(racing, key=lambda number: float(np.median(samples[number])))[: (len(racing) + 1) // 2]
    finally:
        module.fix_plan(None)
    return samples


def choose_busy_plan(
    plans: Sequence[StatePlan], median_ms: Mapping[int, float], gain: float = GAIN
) -> tuple[StatePlan, ...]:
    """The first plan; of those for a busy CPU the fastest under load, if it gains; all plans for other states.

    ``median_ms``: by place, the first plan's and those of all plans for a busy CPU.
    """
    best = min((i for i, plan in enumerate(plans) if plan.state == "cpu busy"), key=median_ms.__getitem__, default=None)
    return tuple(
        plan
        for i, plan in enumerate(plans)
        if i == 0 or plan.state != "cpu busy" or (i == best and median_ms[i] <= gain * median_ms[0])
    )
