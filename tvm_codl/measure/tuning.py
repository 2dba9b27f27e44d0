"""Tunes the kernels of a network, or of the pieces that a plan uses, on a phone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tvm import autotvm

from tvm_codl.build.library import linker_for
from tvm_codl.kernels.tuner.builder import BatchBuilder
from tvm_codl.kernels.tuner.runner import BatchRunner
from tvm_codl.kernels.tuner.trials import Trials
from tvm_codl.kernels.tuner.tune import KernelTuner, Settings, Tuned
from tvm_codl.measure.context import Context
from tvm_codl.measure.wanted_kernels import kernels, network_probes, plan_probes
from tvm_codl.plan.plan import Plan
from tvm_codl.relay.prepared import Prepared

#: Kernels of a plan that take less than this share of its time are left as they are.
WORTH_TUNING = 0.01
#: One repeat lasts at least this long.
MIN_REPEAT_MS = 5


class Report(msgspec.Struct, frozen=True):
    """``records`` is the file for ``--tuning-records``, ``trials`` that of all trials beside it; ``left`` kernels were
    not tuned because the time was up, ``finished`` ones had been before, and of ``failed`` ones nothing that was tried runs."""

    records: str
    trials: str
    tuned: tuple[Tuned, ...]
    finished: int = 0
    left: int = 0
    failed: int = 0


def trials_beside(records: Path) -> Path:
    """Where all trials go whose best go to ``records``."""
    return records.with_name(f"{records.stem}.trials{records.suffix or '.log'}")


def tune_kernels(
    prepared: Prepared,
    context: Context,
    output: Path,
    *,
    plan: Plan | None = None,
    processors: Sequence[str] = ("cpu", "gpu"),
    trials: int = 64,
    early_stopping: int = 0,
    tuner: str = "xgb",
    minutes: float = 0.0,
    retry_failed: bool = False,
) -> Report:
    """Tunes the whole operators of a network, or the pieces of ``plan``, those that take longest first.

    Tries at most ``trials`` configurations of a kernel; ``early_stopping`` many without a better one, or ``minutes`` in all,
    end it sooner (0: never).  ``tuner`` is one of :data:`~tvm_codl.kernels.tuner.tuners.NAMES`.  Appends the best of each
    kernel to ``output``, every trial to the file beside it and to the record store.  What these hold is not measured again,
    but failures with ``retry_failed``.  Raises :class:`DeviceError` where the phone goes away for good; what was measured
    is kept.
    """
    tools, phone, log = context.tools, context.phone, context.log
    targets = {"cpu": tools.cpu, "gpu": tools.gpu}
    graph = prepared.graph
    probes = plan_probes(plan, graph, prepared.axes, processors) if plan else network_probes(graph, processors)
    wanted = kernels(graph, probes, targets)
    shortest = WORTH_TUNING * sum(kernel.ms for kernel in wanted) if plan is not None else 0.0
    chosen = [kernel for kernel in wanted if kernel.ms >= shortest]
    log(f"{len(chosen)} kernels to tune" + (f", {len(wanted) - len(chosen)} take too little time" if plan else ""))
    deadline = time.monotonic() + 60 * minutes if minutes else float("inf")
    tuned: list[Tuned] = []
    finished = left = failed = 0
    profile = context.store.keep_profile(phone.profile.to_json())
    kept = Trials(trials_beside(output), context.store, context.device, profile, retry_failed)
    builder = BatchBuilder(fcompile=linker_for(tools.cpu))
    runner = BatchRunner(phone, number=1, repeat=3, min_repeat_ms=MIN_REPEAT_MS, keep=kept.keep, log=log)
    settings = Settings(trials, early_stopping, tuner)
    tuning = KernelTuner(builder, runner, kept, output, settings, tools.records, deadline)
    try:
        for number, kernel in enumerate(chosen, 1):
            if time.monotonic() > deadline:
                left = len(chosen) - number + 1
                log(f"the time is up: {left} kernels are left")
                break
            name, *arguments = kernel.workload
            task = autotvm.task.create(name, tuple(arguments), targets[kernel.processor])
            if tuning.finished(task):
                finished += 1
            elif best := tuning.tune(task, f"[Task {number:2d}/{len(chosen):2d}] "):
                tuned.append(best)
            else:
                failed += 1
    finally:
        builder.close()
    if finished:
        log(f"{finished} kernels had been tuned before")
    if failed:
        log(f"of {failed} kernels no configuration runs: the errors are in {trials_beside(output)}")
    return Report(str(output), str(trials_beside(output)), tuple(tuned), finished, left, failed)
