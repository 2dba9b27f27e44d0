"""Compares a library's answer with the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tvm_codl.errors import CheckFailed
from tvm_codl.runtime.comodule import CoModule

#: The largest relative error of a right answer, and of one that the GPU computes in float16.
TOLERANCE, FLOAT16_TOLERANCE = 1e-3, 5e-3


def answer_errors(outputs: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> tuple[float, float]:
    """The largest absolute error, and the largest relative to the largest magnitude of its own output tensor.

    Both are infinite where an output has another shape, or values that are not finite, as where float16 overflows.
    """
    absolute = relative = 0.0
    for output, want in zip(outputs, wanted, strict=True):
        if output.shape != want.shape or not np.isfinite(output).all():
            return math.inf, math.inf
        difference = float(np.abs(output.astype("float64") - want).max(initial=0.0))
        absolute = max(absolute, difference)
        relative = max(relative, difference / max(float(np.abs(want).max(initial=0.0)), 1e-12))
    return absolute, relative


def check_answer(
    name: str,
    module: CoModule,
    inputs: Mapping[str, np.ndarray],
    wanted: Sequence[np.ndarray],
    tolerance: float = TOLERANCE,
) -> tuple[float, float]:
    """Runs a library and returns its :func:`answer_errors` against onnxruntime's answer ``wanted``.

    Raises :class:`CheckFailed` where the relative error is over ``tolerance``.
    """
    errors = answer_errors(module.run(inputs), wanted)
    if not errors[1] <= tolerance:
        raise CheckFailed(
            f"the answer of {name} differs from onnxruntime's",
            f"relative error {errors[1]:.2e}, {tolerance:g} is allowed",
        )
    return errors
