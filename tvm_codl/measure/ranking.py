"""Ranking models: a coarse filter by prediction, a fine one by measurement.

All models are predicted from the records of the phone, which costs no measurement; the best few are planned, built and run
there, in turn with each other.  Meant for variants of one network (pruned, searched), of which there are many more than one
would measure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tvm_codl.cost.model import CostModel
from tvm_codl.cost.sharing import SharingCost
from tvm_codl.errors import CheckFailed, UsageError
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.kernels.toolchain import Toolchain, toolchain
from tvm_codl.measure.bench import TOLERANCE, errors
from tvm_codl.measure.interleave import calm_down, rounds
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.measure.sharing import measure_sharing
from tvm_codl.measure.workflow import (
    Log,
    Prepared,
    learner,
    library_for,
    make_plan,
    measuring,
    open_library,
)
from tvm_codl.paths import default_records
from tvm_codl.plan.candidates import Axes, candidates
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.search import search
from tvm_codl.records.record import Processor, Record
from tvm_codl.records.store import RecordStore
from tvm_codl.records.workload import Workload
from tvm_codl.report.ranking import Measured, Predicted, Ranking, agreement, in_order
from tvm_codl.report.statistics import Statistics

#: With fewer records of a phone and build than this a prediction would be a guess.
FEWEST_RECORDS = 32
#: Whole operators that are measured then, over all models together, on both processors.
SEEDS = 48


def rank_models(
    networks: Mapping[str, Prepared],
    phone: Any,
    *,
    top: int = 3,
    budget_s: float = 30.0,
    repeat: int = 20,
    log: Log = lambda _: None,
    records: Path | None = None,
    tuning_records: Path | None = None,
) -> Ranking:
    """Predicts every network (by name), then measures the ``top`` best on the phone and compares the two orders.

    The prediction uses the phone's records as they are.  Only where the store has next to none of this phone and build,
    some of the networks' whole operators are measured first.  Each of the best gets ``budget_s`` seconds of measuring for
    its own plan (:func:`~tvm_codl.measure.workflow.make_plan`), then all run in turn, ``repeat`` rounds.  Raises
    :class:`UsageError` for no networks, :class:`CheckFailed` where an answer differs from onnxruntime's.
    """
    if not networks:
        raise UsageError("there is nothing to rank", next="name at least one model")
    tools = toolchain(phone.profile, tuning_records)
    with RecordStore(records or default_records()) as store:
        known = _records(store, phone, tools)
        seeded = 0
        if len(known) < FEWEST_RECORDS:
            log(f"{len(known)} records of {phone.profile.name} in this build: measuring some whole operators")
            for name, probes in seeds(networks, SEEDS).items():
                seeded += len(measuring(networks[name], phone, tools, store, log).measure(probes))
            known = _records(store, phone, tools)
    sharing = measure_sharing(phone, tools.cpu, tools.gpu)
    model = learner(phone.profile, tools)(known)
    predicted = in_order(
        [predict(name, p.graph, p.axes, model, sharing) for name, p in networks.items()]
    )  # fmt: skip
    log(f"predicted {len(predicted)} models from {len(known)} records")
    ranking = Ranking(phone.profile.name, len(known), seeded, predicted)
    best = [p.model for p in predicted[:top]]
    if not best:
        return ranking
    plans = {}
    for name in best:
        log(f"planning {name}")
        plans[name] = make_plan(
            networks[name], phone, budget_s=budget_s, log=log, records=records, tuning_records=tuning_records
        )
    measured = _measured({name: networks[name] for name in best}, plans, phone, tools, repeat, log)
    return Ranking(
        ranking.device,
        ranking.records,
        ranking.seeded,
        predicted,
        measured,
        agreement({p.model: p.coexec_ms for p in predicted}, {m.model: m.latency_ms.median for m in measured}),
    )


def _records(store: RecordStore, phone: Any, tools: Toolchain) -> list[Record]:
    return list(store.query(device=phone.profile.name, build=tools.kernel_id, mode="alone"))


def seeds(networks: Mapping[str, Prepared], most: int) -> dict[str, list[Probe]]:
    """Whole operators to learn a phone's speed from: of each network the same number, evenly over their FLOPs."""
    share = max(1, most // len(networks))
    seen: set[str] = set()
    found: dict[str, list[Probe]] = {}
    for name, network in networks.items():
        flops = {o.id: o.flops for o in network.graph.operators}
        probes = sorted((p for p in whole_probes(network.graph) if p.key not in seen), key=lambda p: flops[p.operator])
        pairs = [p for p in probes if p.processor == "cpu"]
        chosen = {pairs[int(i)].key for i in np.linspace(0, len(pairs) - 1, min(share, len(pairs))).round()}
        seen |= chosen
        found[name] = [p for p in probes if p.key in chosen]
    return {name: probes for name, probes in found.items() if probes}


def predict(name: str, graph: OpGraph, axes: Axes, model: CostModel, sharing: SharingCost) -> Predicted:
    """A network's latency on each processor alone and under the best plan by prediction."""
    found = search(graph, candidates(graph, axes, model), sharing, axes, name)
    wholes = [Workload.of(o, graph) for o in graph.operators]
    times = np.minimum(model.predict(wholes, "cpu"), model.predict(wholes, "gpu"))
    known = np.array([any(model.measured(w, p) for p in ("cpu", "gpu")) for w in wholes])
    sigma = _sigma(graph, axes, found.plan, model)
    share = float(times[known].sum() / times.sum()) if times.sum() > 0 else 0.0
    return Predicted(
        name, len(graph.operators), found.cpu_only_ms, found.gpu_only_ms, found.plan.predicted_ms, sigma, share
    )


def _sigma(graph: OpGraph, axes: Axes, plan: Plan, model: CostModel) -> float:
    """Standard error of the sum of the operators' times under a plan, in milliseconds.

    What is predicted once and occurs n times is off n times in the same direction; different workloads are taken as
    independent of each other.
    """
    pieces: dict[Processor, list[tuple[int, Workload]]] = {"cpu": [], "gpu": []}
    for node, (operator, planned) in enumerate(zip(graph.operators, plan.operators, strict=True)):
        for processor, lo, hi in _parts(planned.placement, axes.get(operator.id, {})):
            workload = Workload.of(operator, graph, planned.placement.axis, lo, hi)
            pieces[processor].append((node, workload))
    slower: dict[int, tuple[float, float, tuple[Processor, str]]] = {}
    for processor, placed in pieces.items():
        if not placed:
            continue
        # The model's deviation is that of log-time: to first order a share of the time.
        ms, relative = model.estimate([w for _, w in placed], processor)
        for (node, workload), time, error in zip(placed, ms.tolist(), (ms * relative).tolist(), strict=True):
            slower[node] = max(slower.get(node, (-1.0, 0.0, ("cpu", ""))), (time, error, (processor, workload.key)))
    together: dict[tuple[Processor, str], float] = {}
    for _, error, key in slower.values():
        together[key] = together.get(key, 0.0) + error
    return float(np.sqrt(sum(error**2 for error in together.values())))


def _parts(placement: Placement, axes: Mapping[str, Any]) -> list[tuple[Processor, int, int]]:
    if placement.on != "split":
        return [(placement.on, 0, 0)]
    cpu, gpu = placement.parts(axes[placement.axis].extent)
    return [("cpu", *cpu), ("gpu", *gpu)]


def _measured(
    networks: Mapping[str, Prepared],
    plans: Mapping[str, Plan],
    phone: Any,
    tools: Toolchain,
    repeat: int,
    log: Callable[[str], None],
) -> tuple[Measured, ...]:
    """All networks in turn, so that the phone's drift meets them alike; the fastest first."""
    modules = {name: open_library(library_for(p, plans[name], tools, log), phone) for name, p in networks.items()}
    relative = {}
    for name, module in modules.items():
        inputs = networks[name].model.sample_inputs()
        _, relative[name] = errors(module.run(inputs), reference_outputs(networks[name].model, inputs))
        if relative[name] > TOLERANCE:
            raise CheckFailed(f"{name}: the answer differs from onnxruntime's by {relative[name]:.2e} relative")
    calm_down()
    log(f"running {repeat} rounds of {len(modules)} models")
    samples = rounds(modules, repeat)
    found = [
        Measured(name, Statistics.of(times), plans[name].predicted_ms, relative[name])
        for name, times in samples.items()
    ]
    return tuple(sorted(found, key=lambda m: m.latency_ms.median))
