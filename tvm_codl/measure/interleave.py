"""Times several libraries in turn on one phone, so that drift affects all alike."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tvm_codl.runtime.comodule import CoModule

CALM_S = 4.0
#: Samples of one library in one round.
RUNS = 2


@dataclass(frozen=True)
class Interleaving:
    """Libraries by name that run in turn, all with the same inputs."""

    modules: Mapping[str, CoModule]
    inputs: Mapping[str, np.ndarray]

    def start(self) -> None:
        """Gives every library its inputs, runs it once, and waits until the phone is calm."""
        for module in self.modules.values():
            module.run(self.inputs)
        calm_down()

    def rounds(self, repeat: int, names: Iterable[str] | None = None) -> dict[str, list[float]]:
        """Samples in ms of the libraries ``names`` (by default all), once they were started."""
        return rounds({name: self.modules[name] for name in names or self.modules}, repeat)


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


def sample(module: CoModule, runs: int = RUNS) -> list[float]:
    """``runs`` samples in ms after one that is not counted.

    The first run after another module's finds its caches and driver state (PoCL keeps 128 kernels open), which an
    application that runs one network again and again does not see.
    """
    return module.benchmark(1, 1 + runs)[1:]
