"""Kernels on a phone's GPU: built on all cores, timed back to back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tvm
from gpu_convolutions import Wanted
from tvm import autotvm
from tvm.autotvm.measure import MeasureInput
from tvm.autotvm.task.space import FallbackConfigEntity

from tvm_codl.api import Session
from tvm_codl.build.library import linker_for
from tvm_codl.kernels.dispatch import plain, scheduled
from tvm_codl.kernels.tuner.answers import time_kernel
from tvm_codl.kernels.tuner.builder import BatchBuilder, Built
from tvm_codl.kernels.tuner.runner import gpu_limits

#: One sample lasts at least this long, if so many runs are enough.
SAMPLE_S, MOST_RUNS = 0.02, 2000


class OnPhone:
    """A built kernel on the phone, with arguments of random numbers; :meth:`sample` times it."""

    def __init__(self, session: Session, built: Built) -> None:
        """Sends the library.  Raises :class:`tvm.error.TVMError` where the phone does not run it."""
        self._phone = session.phone
        remote, name = self._phone.remote, f"gpu-{time.time_ns()}.so"
        self._phone.send(Path(built.filename), name)
        try:
            self._module = remote.load_module(name)
        finally:
            remote.remove(name)
        self._function = built.function
        fill = remote.get_function("tvm.contrib.random.random_fill")
        self._arguments = [tvm.nd.empty(shape, dtype, self._phone.gpu) for shape, dtype in built.arg_info]
        for array in self._arguments:
            fill(array)
        first = min(self._seconds(1, 3))
        self.runs = int(np.clip(SAMPLE_S / max(first, 1e-7), 1, MOST_RUNS))

    def sample(self) -> float:
        """ms of one run, of many that are enqueued one behind the other and waited for once."""
        return self._seconds(self.runs, 1)[0] * 1e3

    def kernels_ms(self) -> float:
        """ms that the kernels of one run take by the GPU's own clock, run after run, without what is between them."""
        number = min(self.runs, 20)
        evaluate = self._module.time_evaluator(self._function, self._phone.gpu, number=number, repeat=3)
        return float(np.median(evaluate(*self._arguments).results)) * 1e3

    def _seconds(self, runs: int, repeats: int) -> list[float]:
        return time_kernel(self._phone, self._module, self._function, self._phone.gpu, runs, repeats, self._arguments)


def builder_for(session: Session) -> BatchBuilder:
    """Builds within the limits of the phone's GPU."""
    builder = BatchBuilder(fcompile=linker_for(session.tools.cpu))
    builder.build_kwargs = {"checks": {"gpu": gpu_limits(session.profile)}}
    return builder


def our_inputs(wanted: Sequence[Wanted], session: Session) -> tuple[list[MeasureInput], list[MeasureInput | None]]:
    """The estimate of each kernel, and what the tuned records say; None where they say nothing."""
    target = session.tools.gpu
    estimates, tuned = [], []
    with scheduled(session.tools.records) as context:
        for each in wanted:
            name, *arguments = plain(each.workload)
            task = autotvm.task.create(name, tuple(arguments), target)
            estimates.append(MeasureInput(target, task, FallbackConfigEntity()))
            suggestion = context.suggestion(target, task.workload)
            tuned.append(None if suggestion is None else MeasureInput(target, task, suggestion))
    return estimates, tuned
