"""Times several libraries in turn on one phone, so that drift affects all alike."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import numpy as np

from tvm_codl.runtime.comodule import CoModule

CALM_S = 4.0
#: Samples of one library in one round.
RUNS = 2


def start(modules: Mapping[str, CoModule], inputs: Mapping[str, np.ndarray]) -> None:
    """Gives every module the same inputs, runs it once, and waits until the phone is calm."""
    for module in modules.values():
        module.run(inputs)
    calm_down()


def rounds(modules: Mapping[str, CoModule], repeat: int) -> dict[str, list[float]]:
    """``RUNS`` samples in ms of each module a round, for modules that have their inputs."""
    samples: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(repeat):
        for name, module in modules.items():
            samples[name] += sample(module)
    return samples


def calm_down() -> None:
    """Waits until the kernel has written pages and freed memory after building and sending libraries.

    Where the phone is this machine, that work runs on the measured cores for seconds, and it slows co-execution alone: a
    single processor leaves it the other core.
    """
    os.sync()
    time.sleep(CALM_S)


def sample(module: CoModule, runs: int = RUNS, number: int = 1) -> list[float]:
    """``runs`` samples in ms, each the mean of ``number`` runs, after one that is not counted.

    The first run after another module's finds its caches and driver state (PoCL keeps 128 kernels open), which an
    application that runs one network again and again does not see.
    """
    return module.benchmark(number, 1 + runs)[1:]
