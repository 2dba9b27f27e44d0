"""One interleaved run of a network: each processor alone, co-execution, and every operator, on the phone."""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tvm_codl.errors import UserError
from tvm_codl.graph.footprint import touched_bytes
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.measure.answers import FLOAT16_TOLERANCE, TOLERANCE, check_answer
from tvm_codl.measure.budget import USUAL_S
from tvm_codl.measure.choices import check_settings
from tvm_codl.measure.context import Context
from tvm_codl.measure.fitting import fit_once
from tvm_codl.measure.interleave import MORE, RUNS, calm_down, race
from tvm_codl.measure.measurer import Measurer
from tvm_codl.measure.peers import open_peers
from tvm_codl.measure.plan_libraries import libraries_for, open_runnable
from tvm_codl.measure.planning import make_plan
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.measure.worker import open_remote
from tvm_codl.paths import cache_dir
from tvm_codl.plan.baselines.ideal import ideal_ms
from tvm_codl.plan.candidates import PROCESSORS
from tvm_codl.plan.files import dump_plan, plan_json
from tvm_codl.plan.plan import Plan, uniform_plan
from tvm_codl.records.record import ErrorNo, Processor, Record
from tvm_codl.records.workload import Workload
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.statistics import Statistics
from tvm_codl.report.table import Comparison
from tvm_codl.report.timeline import overlap, read_events
from tvm_codl.runtime.comodule import CoModule

TIMELINES = 5
#: Between so many parts of the rounds the operators are timed by themselves.
PARTS = 5
#: The share of a time limit that the plan may take.
PLANNING = 0.6
#: A file's time may lag behind the clock's by so much.
TICK_S = 0.1


class BenchReport(msgspec.Struct, frozen=True):
    """DESIGN's fields of ``bench --json``.  Times in ms; errors against the reference over all outputs and all three ways
    to run; ``copied_bytes`` inside one run; ``timeline`` holds one run's events.

    A processor that does not run every operator has no times; where neither does, there is no ``best_single`` and no
    ``speedup``.  ``peers_ms`` are other programs' times by name, ``over_best_peer`` the best one's over co-execution's.
    ``discarded`` turns were taken again because other work had the cores; where too few rounds were left without,
    ``disturbed`` says so.
    """

    model: str
    device: str
    cpu_ms: Statistics | None
    gpu_ms: Statistics | None
    coexec_ms: Statistics
    best_single: str | None
    best_single_ms: float | None
    speedup: float | None
    ideal_ms: float
    efficiency: float
    predicted_ms: float
    overlap: float
    max_abs_err: float
    max_rel_err: float
    copied_bytes: int
    sharing: str
    plan: str
    peers_ms: dict[str, Statistics] = {}
    over_best_peer: float | None = None
    discarded: int = 0
    disturbed: bool = False
    timeline: tuple[dict[str, Any], ...] = ()

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.model, self.cpu_ms, self.gpu_ms, self.coexec_ms, self.ideal_ms, self.peers_ms)

    @property
    def ratios(self) -> str:
        """``speedup 1.50, efficiency 0.90, overlap 0.80``."""
        gain = "no processor alone to compare with" if self.speedup is None else f"speedup {self.speedup:.2f}"
        gain = f"disturbed: {gain}" if self.disturbed else gain
        return f"{gain}, efficiency {self.efficiency:.2f}, overlap {self.overlap:.2f}"


class Operators:
    """Every distinct operator of a network, whole, alone on each processor that runs it, as inside a network.

    With ``anew``, :meth:`measure` times them all.  Without, it does nothing: the times are those on record, and
    predictions for operators that are not, as planning does not measure short ones on the GPU.  Measures first what it
    needs for that.  ``unable``: by processor, the first operator that does not run there, and why.
    """

    def __init__(self, prepared: Prepared, context: Context, anew: bool = True) -> None:
        self.prepared = prepared
        self.network_bytes = touched_bytes(prepared.graph)
        self.modules: list[tuple[Sequence[Probe], CoModule]] = []
        self.times: dict[tuple[str, str], list[float]] = {}
        measurer = Measurer.of(prepared, context)
        wholes = whole_probes(prepared.graph)
        known = measurer.newest_records()
        missing = [p for p in wholes if (p.key, p.processor) not in known]
        records = [known[p.key, p.processor] for p in wholes if p not in missing]
        if anew or not predictable(records, len(wholes)):
            records = measurer.measure(wholes)
            measurer.tell_drift()
        else:
            self._predict(missing, context)
        failed = {(r.workload, r.processor): r for r in records if not r.ok}
        self.unable = unable(prepared.graph, failed.values())
        if not anew:
            self.times.update({(r.workload, r.processor): list(r.times_ms) for r in records if r.ok})
            return
        for probes, outcome in measurer.libraries([p for p in wholes if (p.key, p.processor) not in failed]):
            if outcome.path is None:
                raise UserError("an operator does not build on its own", outcome.error, "tvm-codl doctor")
            self.modules.append((probes, open_remote(context.phone, outcome.path)))

    def _predict(self, probes: Sequence[Probe], context: Context) -> None:
        graph, tools = self.prepared.graph, context.tools
        model = fit_once(context.records(), context.profile, tools.kernel_id, tools.records)
        for on in PROCESSORS:
            missing = [p for p in probes if p.processor == on]
            ms = model.predict([Workload.of(graph.operators[p.operator], graph) for p in missing], on)
            self.times.update({(p.key, on): [float(time)] for p, time in zip(missing, ms, strict=True)})

    def measure(self) -> None:
        for probes, module in self.modules:
            for index, probe in enumerate(probes):
                self.times.setdefault((probe.key, probe.processor), []).extend(
                    module.time_region(index, 2, 0.0, self.network_bytes)
                )

    def ideal_ms(self) -> float:
        """Both processors on every operator, each at its own speed, with nothing lost."""
        keys = [Workload.of(o, self.prepared.graph).key for o in self.prepared.graph.operators]
        middle = {key: float(np.median(times)) for key, times in self.times.items()}
        cpu, gpu = ([middle.get((key, on), math.inf) for key in keys] for on in PROCESSORS)
        return ideal_ms(cpu, gpu)


def predictable(on_record: Sequence[Record], wholes: int) -> bool:
    """Whether the times of ``wholes`` operators, each on both processors, can be predicted from those on record: some on
    the GPU, and half of all on the CPU."""
    counts = Counter(record.processor for record in on_record)
    return counts["gpu"] > 0 and 4 * counts["cpu"] >= wholes


def unable(graph: OpGraph, failed: Iterable[Record]) -> dict[Processor, str]:
    """By processor, the first operator of which ``failed`` holds a record there, and its error.

    A processor that runs all of them is left out.
    """
    records = {(record.workload, record.processor): record for record in failed}
    reasons: dict[Processor, str] = {}
    for operator in graph.operators:
        key = Workload.of(operator, graph).key
        for on in PROCESSORS:
            if (record := records.get((key, on))) is not None:
                why = record.error or ErrorNo(record.error_no).name
                reasons.setdefault(on, f"operator {operator.id} ({operator.name}) does not run there: {why}")
    return reasons


def bench(
    prepared: Prepared,
    context: Context,
    plan: Plan | None = None,
    plan_path: str = "",
    repeat: int = 30,
    budget_s: float = USUAL_S,
    peers: bool = False,
    limit_s: float = math.inf,
    again: bool = False,
    full: bool = False,
) -> BenchReport:
    """Builds what is missing, runs everything in turn ``repeat`` times, more often where times vary, and compares the answers
    with the reference's.

    Without ``plan``, makes one first (with ``again`` anew) and writes it to ``plan_path``, by default to a file in the cache
    folder.  Leaves out a processor that does not run every operator.  After ``limit_s`` seconds, of which most go to the
    plan, it ends with fewer rounds.  ``peers``: also the programs that are installed on this machine (:mod:`.peers`), for a
    phone that is this machine.  The ideal rests on the operators' times on record, or with ``full`` on ones that are taken
    between the rounds.  Raises :class:`CheckFailed` where an answer is off by more than 1e-3 relative,
    :class:`UserError` for a plan whose settings the phone cannot do.
    """
    log, until = context.log, time.monotonic() + limit_s
    others = open_peers(prepared.model, prepared.samples, log) if peers else {}
    if plan is None:
        plan = make_plan(prepared, context, budget_s, limit_s=PLANNING * limit_s, again=again)
        plan_path = str(write_plan(plan, plan_path))
        log(f"plan: {plan_path}")
    check_settings(plan.settings, context.profile)
    operators = Operators(prepared, context, anew=full)
    for on, why in operators.unable.items():
        log(f"not run on the {on} alone: {why}")
    singles = [on for on in PROCESSORS if on not in operators.unable]
    plans: dict[str, Plan] = {on: uniform_plan(prepared.graph, on, prepared.name) for on in singles}
    before = time.time() - TICK_S
    plans, modules = open_runnable(prepared, {**plans, "coexec": plan}, context)
    plan, paths = plans["coexec"], libraries_for(prepared, plans, context.tools, log)
    inputs = prepared.samples
    allowed = {"coexec": FLOAT16_TOLERANCE} if plan.settings.gpu_float == "float16" else {}
    errors = [
        check_answer(n, module, inputs, prepared.answers, allowed.get(n, TOLERANCE), prepared.quanta)
        for n, module in modules.items()
    ]
    operators.measure()
    if max(path.stat().st_mtime for path in paths.values()) >= before:  # something was built
        calm_down()
    log(f"running {repeat} rounds")
    racing = race(modules, others, usual=context.usual_work)
    samples: dict[str, list[float]] = {name: [] for name in racing.turns}
    parts = min(repeat, PARTS)
    for part in range(parts):
        if part and time.monotonic() > until:
            log(f"the time limit is over after {len(samples['coexec']) // RUNS} rounds")
            break
        rounds = repeat * (part + 1) // parts - repeat * part // parts
        for name, times in racing.run(rounds, most=MORE * rounds).items():
            samples[name] += times
        operators.measure()
    if racing.words:
        log(racing.words)
    # One library, one set of times: a plan that is a single processor is neither faster nor slower than itself.
    for on in singles:
        if paths[on] == paths["coexec"]:
            samples["coexec"] = samples[on]
    ideal = operators.ideal_ms()
    timelines = [modules["coexec"].timeline() for _ in range(TIMELINES)]
    overlaps = [(overlap(read_events(timeline)), timeline) for timeline in timelines]
    share, middle = sorted(overlaps, key=itemgetter(0))[TIMELINES // 2]
    alone = {on: Statistics.of(samples[on]) for on in singles}
    peers_ms = {name: Statistics.of(samples[name]) for name in others}
    comparison = Comparison(
        prepared.name, alone.get("cpu"), alone.get("gpu"), Statistics.of(samples["coexec"]), ideal, peers_ms
    )
    return BenchReport(
        model=prepared.name,
        device=context.device,
        cpu_ms=comparison.cpu,
        gpu_ms=comparison.gpu,
        coexec_ms=comparison.coexec,
        best_single=comparison.best_single,
        best_single_ms=comparison.best_single_ms,
        speedup=comparison.speedup,
        ideal_ms=ideal,
        efficiency=comparison.efficiency,
        predicted_ms=plan.predicted_ms,
        overlap=share,
        max_abs_err=max(absolute for absolute, _ in errors),
        max_rel_err=max(relative for _, relative in errors),
        copied_bytes=modules["coexec"].copied_bytes,
        sharing=modules["coexec"].sharing,
        plan=plan_path,
        peers_ms=peers_ms,
        over_best_peer=comparison.over_best_peer,
        discarded=racing.discarded,
        disturbed=racing.disturbed,
        timeline=tuple(middle),
    )


def write_plan(plan: Plan, path: str = "") -> Path:
    """Writes a plan to ``path``, by default to a file of its own in the cache folder; returns the file."""
    place = Path(path)
    if not path:
        digest = hashlib.sha256(plan_json(plan).encode()).hexdigest()[:12]
        place = cache_dir() / "plans" / f"{plan.model}.{digest}.plan.json"
        place.parent.mkdir(parents=True, exist_ok=True)
    dump_plan(plan, place)
    return place
