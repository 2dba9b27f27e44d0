"""A network's convolutions alone, in the tuner and in a library, and the whole library beside the sum of its operators.

These times are of runs back to back, waited for once, as a network's run is: events make a GPU take some microseconds
longer for each kernel.  Everything is loaded :data:`LOADS` times: in a library a kernel of a few microseconds takes up to
1.16 times as long in one load as in another (resnet18 on an H100), in every round of that load.  Beside the three times the
time that plans are made from, for which other bytes go through the GPU's caches between two runs, and, by the GPU's clock, a
kernel's time alone and inside a run of the whole network.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from gpu_convolutions import Wanted, convolution_of, wanted_of
from gpu_kernels import OnPhone, builder_for, our_inputs
from tvm.autotvm.measure import MeasureInput

from tvm_codl.api import Session
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model
from tvm_codl.graph.footprint import touched_bytes
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.kernels.tuner.builder import Built
from tvm_codl.kernels.tuner.runner import BatchRunner
from tvm_codl.measure.measurer import Measurer
from tvm_codl.measure.probe import whole_probes
from tvm_codl.measure.tuning import MIN_REPEAT_MS
from tvm_codl.measure.worker import open_remote
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.records.workload import Workload
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.timeline import read_events
from tvm_codl.runtime.comodule import CoModule

#: After each load, each is timed in turn so often; the medians of all count.
LOADS, ROUNDS = 5, 4
#: Runs of the library before one whose kernels are timed: a GPU that idled has a lower clock.
BUSY_RUNS = 20
WARM_MS = 5.0
BACK_TO_BACK = ("alone_ms", "tuner_ms", "library_ms")
TIMES = (*BACK_TO_BACK, "cold_ms", "alone_clock_ms", "run_clock_ms")
#: A library's function, named by the operators that are fused in it.
_CONVOLUTION = re.compile(r"tvmgen_\w+_fused_\w*(conv2d|dense)")


def compare_network(model: str, session: Session) -> dict[str, Any]:
    """Each distinct convolution of a network of the zoo by :data:`TIMES`: its kernel alone, by the tuner's runner, in a
    library with warm and with cold caches, and by the GPU's clock alone and in a run of the network.  ``run_ms`` is a run of
    the network on the GPU, ``sum_ms`` the sum of its operators with cold caches.

    Raises :class:`UserError` for an operator that does not build by itself.
    """
    prepared = prepare(load_model(f"zoo:{model}"))
    graph = prepared.graph
    calls = Counter(Workload.of(operator, graph).key for operator in graph.operators)
    library = session.library(prepared, uniform_plan(graph, "gpu", prepared.name))
    operators = _operators(prepared, session)
    convolutions = _convolutions(model, graph, session)
    estimates, tuned = our_inputs([each for _, each in convolutions.values()], session)
    inputs = [known or estimate for known, estimate in zip(tuned, estimates, strict=True)]
    builder = builder_for(session)
    sums, runs = [], []
    times: dict[str, list[tuple[float, ...]]] = {key: [] for key in convolutions}
    try:
        kernels = dict(zip(convolutions, zip(inputs, builder.build(inputs), strict=True), strict=True))
        # All loads stay until the end: one that follows another would get its addresses.
        loads = [_rounds(prepared, session, library, operators, kernels) for _ in range(LOADS)]
        for run_ms, cold, took in chain.from_iterable(zip(*loads, strict=True)):
            runs += run_ms
            sums.append(sum(calls[key] * ms for key, ms in cold.items()))
            for key, (*alone, all_calls) in took.items():
                times[key].append((*alone, all_calls / calls[key]))
    finally:
        builder.close()
    rows = [
        {"name": each.convolution.name, "operator": operator.name}
        | dict(zip(TIMES, np.median(times[key], axis=0).tolist(), strict=True))
        for key, (operator, each) in convolutions.items()
    ]
    whole = {"run_ms": float(np.median(runs)), "sum_ms": float(np.median(sums))}
    return {"model": model, "rows": rows, **whole, **_summary(rows)}


def _rounds(
    prepared: Prepared,
    session: Session,
    library: Path,
    operators: Sequence[tuple[Path, Sequence[str]]],
    kernels: Mapping[str, tuple[MeasureInput, Built]],
) -> Iterator[tuple[list[float], dict[str, float], dict[str, tuple[float, ...]]]]:
    """Loads everything, and times it :data:`ROUNDS` times in turn: ms of runs of the network, of each operator with cold
    caches, and of each kernel by :data:`TIMES`, the last of them for all its calls in a run."""
    network = session.open(library)
    network.run(prepared.model.sample_inputs())
    regions = {}
    for path, keys in operators:
        module = open_remote(session.phone, path)
        regions.update({key: (module, region) for region, key in enumerate(keys)})
    alone = {key: OnPhone(session, built) for key, (_, built) in kernels.items()}
    runner = BatchRunner(session.phone, 1, 3, MIN_REPEAT_MS)
    touched = touched_bytes(prepared.graph)
    for _ in range(ROUNDS):
        run_ms = network.benchmark(BUSY_RUNS)
        inside = dict(zip(kernels, _inside(network), strict=True))
        cold = {
            key: float(np.median(module.time_region(region, 3, 0.0, touched)))
            for key, (module, region) in regions.items()
        }
        took = {}
        for key, (candidate, built) in kernels.items():
            runner.set_task(candidate.task)
            (result,) = runner.run([candidate], [built])
            module, region = regions[key]
            warm_ms = float(np.median(module.time_region(region, 3, WARM_MS)))
            tuner_ms = 1e3 * float(np.mean(result.costs))
            took[key] = (alone[key].sample(), tuner_ms, warm_ms, cold[key], alone[key].kernels_ms(), inside[key])
        yield run_ms, cold, took


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """In how many rows the times back to back are within 15 % of each other, the widest of them, and by the GPU's clock the
    geometric mean of the time in a run over that alone."""
    apart = [max(row[name] for name in BACK_TO_BACK) / min(row[name] for name in BACK_TO_BACK) for row in rows]
    clock = [row["run_clock_ms"] / row["alone_clock_ms"] for row in rows]
    return {
        "within_15_percent": sum(each <= 1.15 for each in apart),
        "widest": max(apart),
        "clock_ratio": float(np.exp(np.mean(np.log(clock)))),
    }


def _operators(prepared: Prepared, session: Session) -> list[tuple[Path, list[str]]]:
    """Libraries with each operator whole on the GPU, and the workloads of their regions."""
    wholes = [probe for probe in whole_probes(prepared.graph) if probe.processor == "gpu"]
    found = []
    for probes, outcome in Measurer.of(prepared, session).libraries(wholes):
        if outcome.path is None:
            raise UserError("an operator does not build by itself", outcome.error, "tvm-codl doctor")
        found.append((outcome.path, [probe.key for probe in probes]))
    return found


def _convolutions(model: str, graph: OpGraph, session: Session) -> dict[str, tuple[Operator, Wanted]]:
    """By workload the first operator of each kind of convolution, with its kernel, in the operators' order."""
    kernels = {each.convolution: each for each in wanted_of(model, graph, session.tools.gpu)}
    found: dict[str, tuple[Operator, Wanted]] = {}
    for operator in graph.operators:
        if (convolution := convolution_of(operator, graph)) is not None:
            found.setdefault(Workload.of(operator, graph).key, (operator, kernels[convolution]))
    return found


def _inside(network: CoModule) -> list[float]:
    """ms of all calls in a run of each of the library's functions with a convolution or product.

    Equal operators are one function, and functions have the operators' order.
    """
    took: dict[str, float] = defaultdict(float)
    for event in read_events(network.timeline()):
        if event.kind == "kernel" and _CONVOLUTION.match(event.name):
            took[event.name] += (event.end_us - event.start_us) / 1e3
    return list(took.values())
