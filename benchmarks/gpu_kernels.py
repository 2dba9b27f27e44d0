"""Kernels of ours and of TVM's stock templates on a phone's GPU: built on all cores, timed back to back."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import tvm
from gpu_convolutions import Wanted
from gpu_rows import Convolution
from tvm import autotvm, topi  # noqa: F401 - registers the stock templates
from tvm.autotvm.env import GLOBAL_SCOPE
from tvm.autotvm.measure import MeasureInput, MeasureResult
from tvm.autotvm.task.space import FallbackConfigEntity
from tvm.autotvm.tuner.tuner import Tuner

from tvm_codl.api import Session
from tvm_codl.build.library import linker_for
from tvm_codl.kernels.dispatch import plain, scheduled
from tvm_codl.kernels.tuner.answers import time_kernel
from tvm_codl.kernels.tuner.builder import BatchBuilder, Built
from tvm_codl.kernels.tuner.runner import BatchRunner, gpu_limits

#: One sample lasts at least this long, if so many runs are enough.
SAMPLE_S, MOST_RUNS = 0.02, 2000
#: A repeat of a stock trial.
TRIAL_MS = 5
#: Of a stock template's trials this share is drawn at random; the others change one knob of one of so many best.
AT_RANDOM, PARENTS = 0.5, 8


class OnPhone:
    """A built kernel on the phone, with arguments of random numbers; :meth:`sample` times it."""

    def __init__(self, session: Session, built: Built) -> None:
        """Sends the library.  Raises :class:`tvm.error.TVMError` where the phone does not run it."""
        self._phone = session.phone
        remote, name = self._phone.remote, f"gpu-{time.time_ns()}.so"
        remote.upload(built.filename, name)
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
        """ms that the kernels of one run take by the GPU's own clock, without what is between them."""
        evaluate = self._module.time_evaluator(self._function, self._phone.gpu, number=min(self.runs, 20), repeat=3)
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


def stock_task(convolution: Convolution, session: Session) -> Any:
    """The AutoTVM task of TVM's own template for it, for any OpenCL device of the phone's limits."""
    limits = gpu_limits(session.profile)
    options = {"max_num_threads": limits.get("max_threads_per_block", 256), "thread_warp_size": 32}
    if "max_shared_memory_per_block" in limits:
        options["max_shared_memory_per_block"] = limits["max_shared_memory_per_block"]
    words = " ".join(f"-{name}={value}" for name, value in options.items())
    target = tvm.target.Target(f"opencl {words}", host=session.tools.cpu)
    c = convolution
    if c.dense:
        tensors = (
            ("TENSOR", (c.batch, c.channels_in), "float32"),
            ("TENSOR", (c.channels_out, c.channels_in), "float32"),
        )
        return autotvm.task.create("dense_small_batch.gpu", (*tensors, None, "float32"), target)
    data = ("TENSOR", (c.batch, c.channels_in, c.height, c.width), "float32")
    rest = (c.stride, c.pad, c.dilation, "float32")
    if c.depthwise:
        weights = ("TENSOR", (c.channels_in, c.channels_out // c.channels_in, *c.kernel), "float32")
        return autotvm.task.create("depthwise_conv2d_nchw.cuda", (data, weights, *rest), target)
    weights = ("TENSOR", (c.channels_out, c.channels_in, *c.kernel), "float32")
    return autotvm.task.create("conv2d_nchw.cuda", (data, weights, *rest), target)


def tune_stock(task: Any, trials: int, session: Session, seed: int, until: float) -> MeasureInput | None:
    """The best of ``trials`` configurations of a stock template that run; None where none does.

    Those with more work-items in a group than the phone allows are not counted.  It ends at ``until``
    (``time.monotonic()``).
    """
    builder = BatchBuilder(fcompile=linker_for(session.tools.cpu), batch=32)
    runner = BatchRunner(session.phone, number=1, repeat=3, min_repeat_ms=TRIAL_MS)
    tuner = Evolving(task, trials, gpu_limits(session.profile).get("max_threads_per_block", 256), seed)
    option = autotvm.measure_option(builder=builder, runner=runner)

    def in_time(*_: object) -> None:
        if time.monotonic() > until:
            tuner.trials = 0

    silent, GLOBAL_SCOPE.silent = GLOBAL_SCOPE.silent, True
    try:
        tuner.tune(n_trial=trials, measure_option=option, callbacks=[in_time])
    finally:
        GLOBAL_SCOPE.in_tuning, GLOBAL_SCOPE.silent = False, silent
        builder.close()
    if not tuner.best:
        return None
    return MeasureInput(task.target, task, task.config_space.get(min(tuner.best)[1]))


class Evolving(Tuner):
    """Draws at random, then changes single knobs of the best: TVM's own model cannot be trained with today's xgboost."""

    def __init__(self, task: Any, trials: int, most_threads: int, seed: int) -> None:
        super().__init__(task)
        self.trials, self.most_threads = trials, most_threads
        self.best: list[tuple[float, int]] = []
        self._seen: set[int] = set()
        self._random = random.Random(seed)

    def has_next(self) -> bool:
        return len(self._seen) < min(self.trials, len(self.space) // 2 + 1)

    def next_batch(self, batch_size: int) -> list[Any]:
        chosen: list[Any] = []
        for _ in range(1000 * batch_size):
            if len(chosen) == batch_size or not self.has_next():
                break
            index = self._propose()
            config = self.space.get(index)
            if index not in self._seen and _threads(config) <= self.most_threads:
                self._seen.add(index)
                chosen.append(config)
        if not chosen:  # nothing new is found
            self.trials = 0
        return chosen

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for candidate, result in zip(inputs, results, strict=True):
            if result.error_no == 0:
                self.best.append((float(np.mean(result.costs)), candidate.config.index))
        self.best.sort()

    def _propose(self) -> int:
        if not self.best or len(self._seen) < AT_RANDOM * self.trials:
            return self._random.randrange(self.space.range_length)
        _, parent = self._random.choice(self.best[:PARENTS])
        knobs = list(self.space.point2knob(parent))
        changed = self._random.randrange(len(knobs))
        knobs[changed] = self._random.randrange(self.space.dims[changed])
        return int(self.space.knob2point(knobs))


def _threads(config: Any) -> int:
    """Work-items of a group: the third factor of each axis that is cut in four."""
    sizes = [entity.size for entity in config._entity_map.values() if len(getattr(entity, "size", ())) == 4]
    return prod(size[2] for size in sizes)
