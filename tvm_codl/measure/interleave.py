"""Timing several libraries in turn on one phone, so that drift meets them all alike."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import numpy as np

from tvm_codl.runtime.comodule import CoModule

CALM_S = 4.0
#: Samples of one library in one round.
RUNS = 2


def interleaved(
    modules: Mapping[str, CoModule], inputs: Mapping[str, np.ndarray], repeat: int
) -> dict[str, list[float]]:
    """Milliseconds of each module, ``repeat`` rounds in turn, after one run each and a pause."""
    ready(modules, inputs)
    return rounds(modules, repeat)


def ready(modules: Mapping[str, CoModule], inputs: Mapping[str, np.ndarray]) -> None:
    """Gives every module its inputs and runs it once; then the phone may calm down."""
    for module in modules.values():
        module.run(inputs)
    calm_down()


def rounds(modules: Mapping[str, CoModule], repeat: int) -> dict[str, list[float]]:
    """``RUNS`` samples in ms of each module a round, for modules that are :func:`ready`."""
    samples: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(repeat):
        for name, module in modules.items():
            samples[name] += settled(module)
    return samples


def calm_down() -> None:
    """Waits until what building and sending libraries left behind is done: pages to write, memory to give back.

    The kernel does that for seconds after, on the cores that are about to be measured where the phone is this machine,
    and it meets co-execution alone: a single processor leaves it the other core.
    """
    os.sync()
    time.sleep(CALM_S)


def settled(module: CoModule, runs: int = RUNS) -> list[float]:
    """``runs`` samples in ms after one that is not counted.

    The first run after another module's finds caches and driver in that one's state (PoCL keeps 128 kernels open and
    opens the others anew); an application runs one network again and again.
    """
    return module.benchmark(1, 1 + runs)[1:]
