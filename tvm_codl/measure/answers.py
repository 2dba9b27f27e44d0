"""Compares a library's answer with the reference, once or run after run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from tvm_codl.errors import CheckFailed
from tvm_codl.measure.checked_kernels import Fault
from tvm_codl.records.record import ErrorNo
from tvm_codl.relay.quanta import OF_RANGE
from tvm_codl.runtime.comodule import CoModule

#: The largest relative error of a right answer, and of one that the GPU computes in float16.
TOLERANCE, FLOAT16_TOLERANCE = 1e-3, 5e-3


#: Runs of a library with kernels that are new to a phone; fewer of a slow one, but so many at least, within the seconds.
RUNS, FEWEST, SECONDS = 50, 10, 5.0


#: The share of a quantised output's values that may differ by more than one quantum: roundings to the other side.
STRAYS = 1e-3


def answer_errors(
    outputs: Sequence[np.ndarray], wanted: Sequence[np.ndarray], quanta: Sequence[float] = ()
) -> tuple[float, float]:
    """The largest absolute error, and the largest relative to the largest magnitude of its own output tensor.

    Both are infinite where an output has another shape, or values that are not finite, as where float16 overflows.
    ``quanta`` are those of a quantised network's outputs (:func:`.quanta_of`).  For these the relative error is that of all
    values but the :data:`STRAYS`, and 0 where it is at most one quantum.
    """
    absolute = relative = 0.0
    for number, (output, want) in enumerate(zip(outputs, wanted, strict=True)):
        if output.shape != want.shape or not np.isfinite(output).all():
            return math.inf, math.inf
        differences = np.abs(output.astype("float64") - want)
        absolute = max(absolute, float(differences.max(initial=0.0)))
        quantum = quanta[number] if quanta else 0.0
        counted = float(differences.max(initial=0.0))
        if quantum:
            if quantum == OF_RANGE:
                quantum = float(np.ptp(want)) / 255 if want.size else 0.0
            counted = float(
                np.sort(differences, axis=None)[: differences.size - int(STRAYS * differences.size)].max(initial=0.0)
            )
            counted = 0.0 if counted <= quantum * (1 + TOLERANCE) else counted
        relative = max(relative, counted / max(float(np.abs(want).max(initial=0.0)), 1e-12))
    return absolute, relative


def check_answer(
    name: str,
    module: CoModule,
    inputs: Mapping[str, np.ndarray],
    wanted: Sequence[np.ndarray],
    tolerance: float = TOLERANCE,
    quanta: Sequence[float] = (),
) -> tuple[float, float]:
    """Runs a library and returns its :func:`answer_errors` against the reference answer ``wanted``.

    Raises :class:`CheckFailed` where the relative error is over ``tolerance``.
    """
    errors = answer_errors(module.run(inputs), wanted, quanta)
    if not errors[1] <= tolerance:
        raise CheckFailed(
            f"the answer of {name} is not the reference's",
            f"relative error {errors[1]:.2e}, {tolerance:g} is allowed",
        )
    return errors


def find_fault(
    module: CoModule,
    inputs: Mapping[str, np.ndarray],
    wanted: Sequence[np.ndarray],
    tolerance: float = TOLERANCE,
    quanta: Sequence[float] = (),
) -> Fault | None:
    """Runs a library :data:`RUNS` times on one input; what is wrong with its answers, None where they are right.

    They must be near ``wanted``, and one the same as the other bit by bit: an answer that changes is right by chance.
    """
    first = module.run(inputs)
    _, relative = answer_errors(first, wanted, quanta)
    if not relative <= tolerance:
        return Fault(int(ErrorNo.GPU_WRONG), f"relative error {relative:.2e}, {tolerance:g} is allowed")
    until = time.monotonic() + SECONDS
    for run in range(2, RUNS + 1):
        if run > FEWEST and time.monotonic() > until:
            break
        if any(a.tobytes() != b.tobytes() for a, b in zip(module.run(), first, strict=True)):
            return Fault(int(ErrorNo.GPU_UNSTEADY), f"run {run} on the same input gave another answer than the first")
    return None
