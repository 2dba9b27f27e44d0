"""LoadedModel: a network as Relay, with the names and shapes of its inputs and outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tvm

from tvm_codl.relay.quanta import quanta_of
from tvm_codl.relay.quantised import EIGHT_BITS

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LoadedModel:
    """A Relay module (NHWC inside, weights bound as constants), and what computes the answers that it must give.

    ``inputs`` holds (name, shape, dtype) for each input, in the order and layout of the file or module that it came from.
    ``reference`` computes that one's outputs from values by name, with no pass or kernel of ours.  ``sample`` makes a
    meaningful value for an input of a given shape; ``samples`` holds such values by name, and comes first.  ``path`` is the
    file that it came from, if it was one.
    """

    name: str
    inputs: tuple[tuple[str, Shape, str], ...]
    outputs: tuple[str, ...]
    module: tvm.IRModule
    reference: Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]
    sample: Callable[[Shape], np.ndarray] | None = None
    samples: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    path: Path | None = None

    @functools.cached_property
    def quanta(self) -> tuple[float, ...]:
        """For each output how finely it is rounded (:func:`.quanta_of`); empty for a network that is not quantised."""
        return quanta_of(self.module)

    @functools.cached_property
    def sample_answers(self) -> list[np.ndarray]:
        """The reference's outputs on :meth:`sample_inputs`."""
        return self.reference(self.sample_inputs())

    def sample_inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        """One value for each input: the network's own sample if it has one, else random by ``seed`` (standard normal for
        floats, any value for integers of eight bits, which stand for numbers, zeros and ones for others)."""
        random = np.random.default_rng(seed)
        values = {}
        for name, shape, dtype in self.inputs:
            if name in self.samples:
                value = self.samples[name]
            elif self.sample is not None:
                value = self.sample(shape)
            elif np.issubdtype(np.dtype(dtype), np.floating):
                value = random.standard_normal(shape)
            elif dtype in EIGHT_BITS:
                value = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape)
            else:
                value = random.integers(0, 2, shape)
            values[name] = np.asarray(value, dtype=dtype)
        return values
