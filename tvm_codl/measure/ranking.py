"""Ranks models: predicts all from the phone's records, then plans, builds and runs the best few in turn.

Meant for variants of one network (pruned, searched) that are too many to measure each.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from tvm_codl.cost.model import CostModel
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import UsageError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.measure.answers import check_answer
from tvm_codl.measure.budget import USUAL_S
from tvm_codl.measure.context import Context
from tvm_codl.measure.fitting import model_fitter
from tvm_codl.measure.interleave import calm_down, race
from tvm_codl.measure.learning import usual_transfer_cost
from tvm_codl.measure.measurer import Measurer
from tvm_codl.measure.plan_libraries import open_plans
from tvm_codl.measure.planning import make_plan
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.plan.candidates import Axes, candidates
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.search import search
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.ranking import Measured, Predicted, Ranking, agreement, in_order
from tvm_codl.report.statistics import Statistics

#: With fewer records of a phone and build than this a prediction would be a guess.
FEWEST_RECORDS = 32
#: Whole operators that are measured then, over all models together, on both processors.
SEEDS = 48


def rank_models(
    networks: Mapping[str, Prepared], context: Context, top: int = 3, budget_s: float = USUAL_S, repeat: int = 20
) -> Ranking:
    """Predicts every network (by name), then measures the ``top`` best on the phone and compares the two orders.

    Predicts from the phone's records.  Only where the store has next to none of this phone and build, measures some of the
    networks' whole operators first.  Each of the best gets ``budget_s`` seconds of measuring for its own plan, then all
    run in turn, ``repeat`` rounds.  Raises :class:`UsageError` for no networks, :class:`CheckFailed` where an answer
    differs from onnxruntime's.
    """
    if not networks:
        raise UsageError("there is nothing to rank", next="name at least one model")
    tools, log = context.tools, context.log
    records, seeded = context.records(), 0
    if len(records) < FEWEST_RECORDS:
        log(f"{len(records)} records of {context.device} in this build: measuring some whole operators")
        for name, probes in choose_seeds(networks, SEEDS).items():
            measurer = Measurer.of(networks[name], context)
            seeded += len(measurer.measure(probes))
            measurer.tell_drift()
        records = context.records()
    sharing = usual_transfer_cost(context)
    model = model_fitter(context.profile, tools.kernel_id, tools.records)(records)
    predicted = in_order([predict(name, p.graph, p.axes, model, sharing) for name, p in networks.items()])
    log(f"predicted {len(predicted)} models from {len(records)} records")
    ranking = Ranking(context.device, len(records), seeded, predicted)
    plans = {}
    for name in [p.model for p in predicted[:top]]:
        log(f"planning {name}")
        plans[name] = make_plan(networks[name], context, budget_s)
    if not plans:
        return ranking
    measured = _measure({name: networks[name] for name in plans}, plans, context, repeat)
    order = agreement({p.model: p.coexec_ms for p in predicted}, {m.model: m.latency_ms.median for m in measured})
    return msgspec.structs.replace(ranking, measured=measured, agreement=order)


def choose_seeds(networks: Mapping[str, Prepared], most: int) -> dict[str, list[Probe]]:
    """Whole operators to learn a phone's speed from: of each network the same number, evenly over their FLOPs."""
    share = max(1, most // len(networks))
    seen: set[str] = set()
    seeds: dict[str, list[Probe]] = {}
    for name, network in networks.items():
        flops = {o.id: o.flops for o in network.graph.operators}
        probes = sorted((p for p in whole_probes(network.graph) if p.key not in seen), key=lambda p: flops[p.operator])
        pairs = [p for p in probes if p.processor == "cpu"]
        chosen = {pairs[int(i)].key for i in np.linspace(0, len(pairs) - 1, min(share, len(pairs))).round()}
        seen |= chosen
        seeds[name] = [p for p in probes if p.key in chosen]
    return {name: probes for name, probes in seeds.items() if probes}


def predict(name: str, graph: OpGraph, axes: Axes, model: CostModel, sharing: TransferCost) -> Predicted:
    """A network's latency on each processor alone and under the best plan by prediction."""
    best = search(graph, candidates(graph, axes, model), sharing, axes, name)
    wholes = [Workload.of(o, graph) for o in graph.operators]
    times = np.minimum(model.predict(wholes, "cpu"), model.predict(wholes, "gpu"))
    measured = np.array([any(model.measured(w.key, p) for p in ("cpu", "gpu")) for w in wholes])
    sigma = _sigma(graph, axes, best.plan, model)
    share = float(times[measured].sum() / times.sum()) if times.sum() > 0 else 0.0
    return Predicted(
        name, len(graph.operators), best.cpu_only_ms, best.gpu_only_ms, best.plan.predicted_ms, sigma, share
    )


def _sigma(graph: OpGraph, axes: Axes, plan: Plan, model: CostModel) -> float:
    """Standard error of the sum of the operators' times under a plan, in milliseconds.

    The errors of equal workloads add up; those of different workloads are independent.
    """
    pieces: dict[Processor, list[tuple[int, Workload]]] = {"cpu": [], "gpu": []}
    for node, (operator, planned) in enumerate(zip(graph.operators, plan.operators, strict=True)):
        for processor, lo, hi in planned.placement.pieces(axes.get(operator.id, {})):
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


def _measure(
    networks: Mapping[str, Prepared], plans: Mapping[str, Plan], context: Context, repeat: int
) -> tuple[Measured, ...]:
    """Runs all networks in turn, so that the phone's drift affects all alike; the fastest first."""
    modules = {name: open_plans(prepared, {"": plans[name]}, context)[""] for name, prepared in networks.items()}
    relative = {}
    for name, module in modules.items():
        own = networks[name]
        _, relative[name] = check_answer(name, module, own.samples, own.answers, quanta=own.quanta)
    calm_down()
    context.log(f"running {repeat} rounds of {len(modules)} models")
    racing = race(modules, usual=context.usual_work)
    measured = [
        Measured(name, Statistics.of(times), plans[name].predicted_ms, relative[name])
        for name, times in racing.run(repeat).items()
    ]
    if racing.words:
        context.log(racing.words)
    return tuple(sorted(measured, key=lambda m: m.latency_ms.median))
