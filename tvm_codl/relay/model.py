"""What a network is called, what goes in and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import tvm

Shape = tuple[int, ...]


class Model(msgspec.Struct, frozen=True):
    """``inputs`` holds (name, shape, dtype) for each input, in the ONNX file's order and layout."""

    name: str
    source: str
    inputs: tuple[tuple[str, Shape, str], ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class LoadedModel:
    """A :class:`Model` with its Relay module (NHWC inside, weights bound as constants) and the ONNX file it came from.

    ``sample`` makes a value for an input of a given shape that means something to the network.
    """

    model: Model
    module: tvm.IRModule
    onnx_path: Path
    sample: Callable[[Shape], np.ndarray] | None = None

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def inputs(self) -> tuple[tuple[str, Shape, str], ...]:
        return self.model.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.model.outputs

    def sample_inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        """One value for each input: the network's own sample if the zoo has one, else by ``seed`` (standard normal for
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
