"""One interleaved run of a network: each processor alone, co-execution, and every operator, on the phone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tvm_codl.device.opencl import default_records
from tvm_codl.errors import CheckFailed, UserError
from tvm_codl.frontend.model import LoadedModel
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.interleave import calm_down, rounds
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.measure.session import open_remote
from tvm_codl.plan.explain import ideal_ms, uniform_plan
from tvm_codl.plan.plan import Plan
from tvm_codl.records.store import RecordStore
from tvm_codl.records.workload import Workload
from tvm_codl.report.statistics import Statistics
from tvm_codl.report.table import Comparison
from tvm_codl.report.timeline import overlap, read_events
from tvm_codl.runtime.comodule import CoModule
from tvm_codl.targets import Toolchain, toolchain
from tvm_codl.workflow import (
    Log,
    Prepared,
    libraries_for,
    make_plan,
    measuring,
    open_library,
    prepare,
)

TOLERANCE = 1e-3
TIMELINES = 5


class BenchReport(msgspec.Struct, frozen=True):
    """DESIGN's fields of ``bench --json``.  Times in ms; errors against onnxruntime over all outputs and all three ways
    to run; ``copied_bytes`` inside one run; ``timeline`` holds one run's events."""

    model: str
    device: str
    cpu_ms: Statistics
    gpu_ms: Statistics
    coexec_ms: Statistics
    best_single: str
    best_single_ms: float
    speedup: float
    ideal_ms: float
    efficiency: float
    predicted_ms: float
    overlap: float
    max_abs_err: float
    max_rel_err: float
    copied_bytes: int
    sharing: str
    plan: str
    timeline: tuple[dict[str, Any], ...] = ()

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.model, self.cpu_ms, self.gpu_ms, self.coexec_ms, self.ideal_ms)


class Operators:
    """Every distinct operator of a network, whole, alone on each processor, as inside a network."""

    def __init__(self, prepared: Prepared, phone: Any, tools: Toolchain, records: Path | None, log: Log) -> None:
        self.prepared = prepared
        self.modules: list[tuple[Sequence[Probe], CoModule]] = []
        with RecordStore(records or default_records()) as store:
            session = measuring(prepared, phone, tools, store, log)
            for probes, outcome in session.libraries(whole_probes(prepared.graph)):
                if outcome.path is None:
                    raise UserError("an operator does not build on its own", outcome.error, "tvm-codl doctor")
                self.modules.append((probes, open_remote(phone, outcome.path)))
        self.times: dict[tuple[str, str], list[float]] = {}

    def measure(self) -> None:
        for probes, module in self.modules:
            for index, probe in enumerate(probes):
                self.times.setdefault((probe.key, probe.processor), []).extend(module.time_region(index, 2, 0.0))

    def ideal_ms(self) -> float:
        """Both processors on every operator, each at its own speed, with nothing lost."""
        keys = [Workload.of(o, self.prepared.graph).key for o in self.prepared.graph.operators]
        middle = {key: float(np.median(times)) for key, times in self.times.items()}
        return ideal_ms([middle[k, "cpu"] for k in keys], [middle[k, "gpu"] for k in keys])


def errors(outputs: list[np.ndarray], wanted: list[np.ndarray]) -> tuple[float, float]:
    """The largest absolute error, and the largest relative to the largest magnitude of its own output tensor."""
    absolute = relative = 0.0
    for got, want in zip(outputs, wanted, strict=True):
        if got.shape != want.shape or not np.isfinite(got).all():
            raise CheckFailed(
                "an output has the wrong shape or values that are no numbers", f"{got.shape} {want.shape}"
            )
        difference = float(np.abs(got.astype("float64") - want).max(initial=0.0))
        absolute = max(absolute, difference)
        relative = max(relative, difference / max(float(np.abs(want).max(initial=0.0)), 1e-12))
    return absolute, relative


def bench(
    model: LoadedModel | Prepared,
    phone: Any,
    *,
    plan: Plan | None = None,
    plan_path: str = "",
    repeat: int = 30,
    budget_s: float = 120.0,
    log: Callable[[str], None] = lambda _: None,
    records: Path | None = None,
    tuning_records: Path | None = None,
) -> BenchReport:
    """Builds what is not built, runs everything in turn ``repeat`` times, and compares the answers with onnxruntime.

    Without ``plan`` one is made first.  Raises :class:`CheckFailed` where an answer is off by more than 1e-3 relative.
    """
    prepared = model if isinstance(model, Prepared) else prepare(model)
    if plan is None:
        plan = make_plan(prepared, phone, budget_s=budget_s, log=log, records=records, tuning_records=tuning_records)
    tools = toolchain(phone.profile, tuning_records)
    plans = {
        "cpu": uniform_plan(prepared.graph, "cpu", prepared.name),
        "gpu": uniform_plan(prepared.graph, "gpu", prepared.name),
        "coexec": plan,
    }
    paths = libraries_for(prepared, plans, tools, log)
    modules = {name: open_library(path, phone) for name, path in paths.items()}
    inputs = prepared.model.sample_inputs()
    wanted = reference_outputs(prepared.model, inputs)
    absolute = relative = 0.0
    for name, module in modules.items():
        found = errors(module.run(inputs), wanted)
        absolute, relative = max(absolute, found[0]), max(relative, found[1])
        if found[1] > TOLERANCE:
            raise CheckFailed(f"the {name} answer differs from onnxruntime's by {found[1]:.2e} relative")
    operators = Operators(prepared, phone, tools, records, log)
    operators.measure()
    calm_down()
    log(f"running {repeat} rounds")
    samples: dict[str, list[float]] = {name: [] for name in modules}
    every = max(1, repeat // 5)
    for round_ in range(repeat):
        for name, times in rounds(modules, 1).items():
            samples[name] += times
        if round_ % every == 0:
            operators.measure()
    # One library, one set of times: a plan that is a single processor is neither faster nor slower than itself.
    for name in ("cpu", "gpu"):
        if paths[name] == paths["coexec"]:
            samples["coexec"] = samples[name]
    ideal = operators.ideal_ms()
    timelines = [modules["coexec"].timeline() for _ in range(TIMELINES)]
    overlaps = [overlap(read_events(t)) for t in timelines]
    middle = sorted(range(TIMELINES), key=lambda i: overlaps[i])[TIMELINES // 2]
    comparison = Comparison(
        prepared.name,
        Statistics.of(samples["cpu"]),
        Statistics.of(samples["gpu"]),
        Statistics.of(samples["coexec"]),
        ideal,
    )
    return BenchReport(
        model=prepared.name,
        device=phone.profile.name,
        cpu_ms=comparison.cpu,
        gpu_ms=comparison.gpu,
        coexec_ms=comparison.coexec,
        best_single="cpu" if comparison.cpu.median <= comparison.gpu.median else "gpu",
        best_single_ms=comparison.best_single_ms,
        speedup=comparison.speedup,
        ideal_ms=ideal,
        efficiency=comparison.efficiency,
        predicted_ms=plan.predicted_ms,
        overlap=overlaps[middle],
        max_abs_err=absolute,
        max_rel_err=relative,
        copied_bytes=modules["coexec"].copied_bytes,
        sharing=modules["coexec"].sharing,
        plan=plan_path,
        timeline=tuple(timelines[middle]),
    )


#: The public name: ``tvm_codl.bench`` is this module.
compare = bench
