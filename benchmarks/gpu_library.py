"""A network's convolutions alone and in the network's library, both by the GPU's own clock.

Alone in two ways: run after run, as the tuner times them, with weights that the GPU's cache may hold; and as in a run of the
library, where all other weights go through the cache between two runs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from gpu_convolutions import convolution_of, wanted_of
from gpu_kernels import OnPhone, builder_for, our_inputs

from tvm_codl.api import Session
from tvm_codl.frontend.load import load_model
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.records.workload import Workload
from tvm_codl.relay.pipeline import prepare
from tvm_codl.report.timeline import Event, read_events

#: Runs of the library whose kernels' times are averaged.
RUNS = 9
#: A library's function, named by the operators that are fused in it.
_CONVOLUTION = re.compile(r"tvmgen_\w+_fused_\w*(conv2d|dense)")


def compare_network(model: str, session: Session) -> dict[str, Any]:
    """Each convolution of a network of the zoo: ms alone, again and again (``again_ms``) and behind as many bytes as the
    network has weights (``alone_ms``), and of one call in the library of the whole network on the GPU.

    Equal operators are one function in a library, and functions have the operators' order.
    """
    prepared = prepare(load_model(f"zoo:{model}"))
    module = session.open(session.library(prepared, uniform_plan(prepared.graph, "gpu", prepared.name)))
    module.run(prepared.model.sample_inputs())
    runs = [_took(read_events(module.timeline())) for _ in range(RUNS)]
    inside = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
    firsts = list(_first_of_each(prepared.graph).values())
    calls = Counter(Workload.of(operator, prepared.graph).key for operator in prepared.graph.operators)
    by_convolution = {each.convolution: each for each in wanted_of(model, prepared.graph, session.tools.gpu)}
    builder = builder_for(session)
    rows = []
    try:
        wanted = [
            by_convolution[c] for operator in firsts if (c := convolution_of(operator, prepared.graph)) is not None
        ]
        estimates, tuned = our_inputs(wanted, session)
        built = builder.build([known or estimate for known, estimate in zip(tuned, estimates, strict=True)])
        kernels = [OnPhone(session, library) for library in built]
        alone = [(kernel.kernels_ms(), kernel.kernels_ms(module.memory_bytes.weights)) for kernel in kernels]
        for operator, each, (again_ms, alone_ms), function in zip(firsts, wanted, alone, inside, strict=True):
            library_ms = inside[function] / calls[Workload.of(operator, prepared.graph).key]
            rows.append(
                {
                    "name": each.convolution.name,
                    "operator": operator.name,
                    "again_ms": again_ms,
                    "alone_ms": alone_ms,
                    "library_ms": library_ms,
                    "ratio": library_ms / alone_ms,
                }
            )
    finally:
        builder.close()
    ratio = float(np.exp(np.mean([np.log(row["ratio"]) for row in rows])))
    return {
        "model": model,
        "rows": rows,
        "ratio": ratio,
        "within_15_percent": sum(1 / 1.15 <= row["ratio"] <= 1.15 for row in rows),
        "total_ms": sum(row["library_ms"] for row in rows),
    }


def _first_of_each(graph: OpGraph) -> dict[str, Operator]:
    """The first operator of each kind of convolution with what is fused behind it, by its workload."""
    first: dict[str, Operator] = {}
    for operator in graph.operators:
        if convolution_of(operator, graph) is not None:
            first.setdefault(Workload.of(operator, graph).key, operator)
    return first


def _took(events: Sequence[Event]) -> dict[str, float]:
    """ms of all calls of each of the library's functions with a convolution or product, by its name, in their order."""
    took: dict[str, float] = defaultdict(float)
    for event in sorted(events, key=lambda event: event.start_us):
        if event.kind == "kernel" and _CONVOLUTION.match(event.name):
            took[event.name] += (event.end_us - event.start_us) / 1e3
    return took
