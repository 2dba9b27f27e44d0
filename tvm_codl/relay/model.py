"""LoadedModel: a network as Relay, with the names and shapes of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LoadedModel:
    """A Relay module (NHWC inside, weights bound as constants) and the file that it came from, ONNX or TFLite.

    ``inputs`` holds (name, shape, dtype) for each input, in the file's order and layout.  ``sample`` makes a meaningful
    value for an input of a given shape.
    """

    name: str
    inputs: tuple[tuple[str, Shape, str], ...]
    outputs: tuple[str, ...]
    module: tvm.IRModule
    path: Path
    sample: Callable[[Shape], np.ndarray] | None = None

    def sample_inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        """One value for each input: the network's own sample if it has one, else random by ``seed`` (standard normal for
        floats, zeros and ones for integers)."""
        random = np.random.default_rng(seed)
        values = {}
        for name, shape, dtype in self.inputs:
            if self.sample is not None:
                value = self.sample(shape)
            elif np.issubdtype(np.dtype(dtype), np.floating):
                value = random.standard_normal(shape)
            else:
                value = random.integers(0, 2, shape)
            values[name] = np.asarray(value, dtype=dtype)
        return values
