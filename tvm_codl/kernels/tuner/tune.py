"""Tunes kernels on a phone: the estimate and a relative's configuration first, then a tuner's proposals.

One of many candidates may have been lucky, so the best few are measured again in turn with the estimate: the machine's
drift affects all alike.  The winner on a GPU then runs many times against the host's answer.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tvm import autotvm
from tvm.autotvm.env import GLOBAL_SCOPE
from tvm.autotvm.measure import MeasureInput, MeasureResult

from tvm_codl.kernels.dispatch import key_of, scheduled
from tvm_codl.kernels.reuse import FROM_USER, Place, Serves, Tuning, better, place_of, read
from tvm_codl.kernels.target import is_gpu
from tvm_codl.kernels.tuner.answers import Verdict
from tvm_codl.kernels.tuner.builder import BatchBuilder, failed
from tvm_codl.kernels.tuner.progress import Progress
from tvm_codl.kernels.tuner.runner import BatchRunner
from tvm_codl.kernels.tuner.trials import Pair, Trials, append, knobs_of, legal, seconds
from tvm_codl.kernels.tuner.tuners import make_tuner

#: The winner must take less than this share of the estimate's time.
GAIN = 0.97
#: How many of the best are measured again, and how often.
FINALISTS, ROUNDS = 3, 5


#: Processor and lanes: the two processors' kernels of one operator may have equal workloads.
Key = tuple[Serves, Place]


class Settings(msgspec.Struct, frozen=True):
    """At most ``trials`` configurations of a kernel; it ends after ``early_stopping`` without a better one (0: never)."""

    trials: int = 64
    early_stopping: int = 0
    tuner: str = "xgb"


class Tuned(msgspec.Struct, frozen=True):
    """The result of one kernel.  Times in ms of the estimate and of the best, measured in turn; ``trials`` on record,
    ``new`` in this run."""

    processor: str
    task: str
    estimate_ms: float
    best_ms: float
    gflops: float
    trials: int
    new: int


class TimeIsUp(Exception):
    """The budget is spent; what was measured is kept."""


class KernelTuner:
    """Tunes one kernel after another.  ``best`` is the file of AutoTVM records for ``--tuning-records``; after ``deadline``
    (``time.monotonic()``) no more trials are made."""

    def __init__(
        self, builder: BatchBuilder, runner: BatchRunner, trials: Trials, best: Path, settings: Settings,
        tuning_records: Sequence[Path] = (), deadline: float = math.inf,
    ) -> None:  # fmt: skip
        self.builder, self.runner, self.trials, self.best, self.settings = builder, runner, trials, best, settings
        self.deadline = deadline
        self.option = autotvm.measure_option(builder=builder, runner=runner)
        with scheduled([*tuning_records, *([best] if best.exists() else [])]) as context:
            self._context = context
        self._written: dict[Key, Tuning] = {}  # of the lines of the file those that are used
        for tuning in read([best] if best.exists() else []).entries:
            self._keep(tuning)

    def _keep(self, tuning: Tuning) -> None:
        key = (tuning.serves, tuning.place)
        if tuning.wrong:
            used = self._written.get(key)
            if used is not None and used.knobs == tuning.knobs:
                del self._written[key]
        elif key not in self._written or better(tuning, self._written[key]):
            self._written[key] = tuning

    def finished(self, task: Any) -> bool:
        """Whether ``task`` was tuned before, with as many trials as it is to have."""
        recorded = self.trials.find(task)
        return _key(task) in self._written and (self._count_left(task, recorded) <= 0 or self._is_settled(recorded))

    def _count_left(self, task: Any, recorded: Sequence[Pair]) -> int:
        return min(self.settings.trials, len(legal(task.config_space))) - len(recorded)

    def tune(self, task: Any, prefix: str = "") -> Tuned | None:
        """Tunes ``task``; None where nothing of it runs.

        Trials on record are not repeated.  Raises :class:`DeviceError` where the phone does not come back.
        """
        recorded = self.trials.find(task)
        left = self._count_left(task, recorded)
        before = len(recorded)
        silent, GLOBAL_SCOPE.silent = GLOBAL_SCOPE.silent, True
        progress = Progress(prefix, before + max(0, left), before)
        try:
            recorded += self._measure_first(task, recorded, left, progress)
            left -= len(recorded) - before
            if left > 0 and not self._is_settled(recorded):
                tuner = make_tuner(self.settings.tuner, task, recorded, self.trials.find_relatives(task))
                with contextlib.suppress(TimeIsUp):
                    tuner.tune(
                        n_trial=left, measure_option=self.option, callbacks=[progress, self._in_time],
                        early_stopping=self.settings.early_stopping or None,
                    )  # fmt: skip
            recorded = self.trials.find(task)
            tuned = self._confirm(task, recorded, len(recorded) - before)
        finally:
            GLOBAL_SCOPE.in_tuning, GLOBAL_SCOPE.silent = False, silent
        progress.finish(
            f"{tuned.processor} {tuned.task}: {tuned.best_ms:.3f} ms, estimate {tuned.estimate_ms:.3f} ms"
            if tuned
            else "nothing of it runs"
        )
        return tuned

    def _in_time(self, *_: object) -> None:
        if time.monotonic() > self.deadline:
            raise TimeIsUp

    def _is_settled(self, recorded: Sequence[Pair]) -> bool:
        """Whether the last ``early_stopping`` trials on record brought nothing better."""
        patience = self.settings.early_stopping
        ordered = sorted(recorded, key=lambda pair: pair[1].timestamp)
        times = [seconds(result) for _, result in ordered]
        return 0 < patience <= len(times) - 1 - int(np.argmin(times)) if times else False

    def _measure_first(self, task: Any, recorded: Sequence[Pair], left: int, progress: Progress) -> list[Pair]:
        """The estimate (the first value of each knob) and the configuration of a relative, unless they are on record."""
        space = task.config_space
        wanted = [0] if space.is_index_valid(0) else []
        suggestion = self._context.suggestion(task.target, task.workload)
        if suggestion is not None:
            knobs = knobs_of(suggestion)
            wanted += [index for index in legal(space) if knobs_of(space.get(index)) == knobs]
        have = {candidate.config.index for candidate, _ in recorded}
        new = [index for index in dict.fromkeys(wanted) if index not in have][: max(0, left)]
        if not new:
            return []
        inputs = [MeasureInput(task.target, task, space.get(index)) for index in new]
        results = autotvm.measure.create_measure_batch(task, self.option)(inputs)
        progress(None, inputs, results)
        return list(zip(inputs, results, strict=True))

    def _confirm(self, task: Any, recorded: Sequence[Pair], new: int) -> Tuned | None:
        """Measures the best few in turn with the estimate and writes the winner, once its answers have been compared.

        One whose answers are wrong or unsteady becomes a failure on record, and the next best takes its place.
        """
        good = sorted((p for p in recorded if p[1].error_no == 0), key=lambda pair: seconds(pair[1]))
        autotvm.measure.create_measure_batch(task, self.option)  # names the task to builder and runner
        while good:
            estimate = next((pair for pair in good if pair[0].config.index == 0), good[0])
            others = (pair for pair in good[:FINALISTS] if pair[0].config.index != estimate[0].config.index)
            inputs = [candidate for candidate, _ in (estimate, *others)]
            built = self.builder.build(inputs)
            times = self.runner.interleaved(inputs, built, ROUNDS)
            if not times[0]:
                return None
            medians = [float(np.median(each)) if each else math.inf for each in times]
            winner = int(np.argmin(medians))
            if medians[winner] >= GAIN * medians[0]:
                winner = 0
            if self._is_right(inputs[winner], built[winner]):
                return self._write(task, inputs[winner], times[winner], medians[0], len(recorded), new)
            good = [pair for pair in good if pair[0].config.index != inputs[winner].config.index]
        return None

    def _is_right(self, candidate: MeasureInput, built: Any) -> bool:
        """A CPU's kernel needs no check: LLVM compiles it here as there."""
        verdict = self.runner.check(candidate, built) if is_gpu(candidate.target) else Verdict()
        if not verdict.error_no:
            return True
        result = failed(verdict.error_no, verdict.words, 0.0)
        self.trials.keep(candidate, result)
        # It may be in use already, from this file or from the package.
        append(self.best, candidate, result)
        return False

    def _write(
        self, task: Any, candidate: MeasureInput, times: Sequence[float], estimate_s: float, trials: int, new: int
    ) -> Tuned:
        costs = tuple(sorted(times))
        serves, place = _key(task)
        used, config = self._written.get((serves, place)), candidate.config
        # The file's content names what is measured with it: what is used already is not written again.
        if used is None or used.knobs != dict(knobs_of(config)):
            append(self.best, candidate, MeasureResult(costs, 0, 0.0, time.time()))
            mean = float(np.mean(costs))
            self._keep(Tuning(serves, place, config.to_json_dict(), mean, FROM_USER))
        best_s = float(np.median(costs))
        return Tuned(
            serves.processor, task.name, estimate_s * 1e3, best_s * 1e3, task.flop / best_s / 1e9, trials, new
        )  # fmt: skip


def _key(task: Any) -> Key:
    serves, (name, *args) = key_of(task.target, task.workload)
    return serves, place_of(name, args)
