"""TVM's stock templates, tuned for a phone's GPU."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tvm
from gpu_rows import Convolution
from tvm import autotvm, topi  # noqa: F401 - registers the stock templates
from tvm.autotvm.env import GLOBAL_SCOPE
from tvm.autotvm.measure import MeasureInput, MeasureResult
from tvm.autotvm.record import encode, load_from_file
from tvm.autotvm.tuner.tuner import Tuner

from tvm_codl.api import Session
from tvm_codl.build.library import linker_for
from tvm_codl.kernels.tuner.builder import BatchBuilder
from tvm_codl.kernels.tuner.runner import BatchRunner, gpu_limits

#: A repeat of a trial.
TRIAL_MS = 5
#: Of a template's trials this share is drawn at random; the others change one knob of one of so many best.
AT_RANDOM, PARENTS = 0.5, 8
#: So many of the best are timed again, alone: several may have been tuned side by side.
KEPT = 3

Run = tuple[MeasureInput, MeasureResult]


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


class Stock(msgspec.Struct, frozen=True):
    """TVM's own templates, tuned with ``trials`` configurations each; a convolution of ``records`` is not tuned again."""

    trials: int
    records: Path | None
    session: Session
    seed: int

    def best(self, convolution: Convolution, until: float) -> list[MeasureInput]:
        """The best :data:`KEPT` configurations that run, none where none does or none is asked for.  It ends at ``until``
        (``time.monotonic()``)."""
        if not self.trials:
            return []
        task = stock_task(convolution, self.session)
        if known := self._known(task):
            return known
        runs = _tune(task, self.trials, self.session, self.seed, until)[:KEPT]
        if runs and self.records is not None:
            with self.records.open("a") as file:
                file.write("".join(encode(*run) + "\n" for run in runs))
        return [candidate for candidate, _ in runs]

    def _known(self, task: Any) -> list[MeasureInput]:
        if self.records is None or not self.records.exists():
            return []
        # The file does not name the host.
        return [
            MeasureInput(task.target, task, candidate.config)
            for candidate, _ in load_from_file(str(self.records))
            if candidate.task.workload == task.workload
        ]


def _mean(run: Run) -> float:
    return float(np.mean(run[1].costs))


def _tune(task: Any, trials: int, session: Session, seed: int, until: float) -> list[Run]:
    """Those of ``trials`` configurations that run, the fastest first.

    One with more work-items in a group than the phone allows is not counted.
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
    return tuner.best


class Evolving(Tuner):
    """Draws at random, then changes single knobs of the best: TVM's own model cannot be trained with today's xgboost."""

    def __init__(self, task: Any, trials: int, most_threads: int, seed: int) -> None:
        super().__init__(task)
        self.trials, self.most_threads = trials, most_threads
        self.best: list[Run] = []
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
                self.best.append((candidate, result))
        self.best.sort(key=_mean)

    def _propose(self) -> int:
        if not self.best or len(self._seen) < AT_RANDOM * self.trials:
            return self._random.randrange(self.space.range_length)
        parent, _ = self._random.choice(self.best[:PARENTS])
        knobs = list(self.space.point2knob(parent.config.index))
        changed = self._random.randrange(len(knobs))
        knobs[changed] = self._random.randrange(self.space.dims[changed])
        return int(self.space.knob2point(knobs))


def _threads(config: Any) -> int:
    """Work-items of a group: the third factor of each axis that is cut in four."""
    sizes = [entity.size for entity in config._entity_map.values() if len(getattr(entity, "size", ())) == 4]
    return prod(size[2] for size in sizes)
