"""A network's convolutions alone, as the tuner times them, and in the network's library, both by the GPU's own clock."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from gpu_convolutions import convolution_of, wanted_of
from gpu_kernels import OnPhone, builder_for, our_inputs

from tvm_codl.api import Session
from tvm_codl.errors import CheckFailed
from tvm_codl.frontend.load import load_model
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.records.workload import Workload
from tvm_codl.relay.pipeline import prepare
from tvm_codl.report.timeline import Event, read_events

#: Runs of the library whose kernels' times are averaged.
RUNS = 9
#: TVM's names of a library's functions: a prefix, the fused operators, and a number where there are several.
_FUNCTION = re.compile(r"tvmgen_\w+?_fused_(?P<operators>\w+?)(?P<number>_\d+)?$")


def compare_network(model: str, session: Session) -> dict[str, Any]:
    """Each convolution of a network of the zoo: ms alone and in the library of the whole network on the GPU.

    Raises :class:`CheckFailed` where the library's kernels are not those of the network's operators.
    """
    prepared = prepare(load_model(f"zoo:{model}"))
    module = session.open(session.library(prepared, uniform_plan(prepared.graph, "gpu", prepared.name)))
    module.run(prepared.model.sample_inputs())
    inside = np.median([_times(read_events(module.timeline()), prepared.graph) for _ in range(RUNS)], axis=0)
    firsts = list(_first_of_each(prepared.graph).values())
    by_convolution = {each.convolution: each for each in wanted_of(model, prepared.graph, session.tools.gpu)}
    builder = builder_for(session)
    rows = []
    try:
        wanted = [
            by_convolution[c] for operator in firsts if (c := convolution_of(operator, prepared.graph)) is not None
        ]
        estimates, tuned = our_inputs(wanted, session)
        built = builder.build([known or estimate for known, estimate in zip(tuned, estimates, strict=True)])
        for operator, each, library, library_ms in zip(firsts, wanted, built, inside, strict=True):
            alone = OnPhone(session, library).kernels_ms()
            rows.append(
                {
                    "name": each.convolution.name,
                    "operator": operator.name,
                    "alone_ms": alone,
                    "library_ms": float(library_ms),
                    "ratio": float(library_ms) / alone,
                }
            )
    finally:
        builder.close()
    ratio = float(np.exp(np.mean([np.log(row["ratio"]) for row in rows])))
    return {"model": model, "rows": rows, "ratio": ratio, "total_ms": sum(row["library_ms"] for row in rows)}


def _first_of_each(graph: OpGraph) -> dict[str, Operator]:
    """The first operator of each kind of convolution with what is fused behind it, by its workload."""
    first: dict[str, Operator] = {}
    for operator in graph.operators:
        if convolution_of(operator, graph) is not None:
            first.setdefault(Workload.of(operator, graph).key, operator)
    return first


def _times(events: Sequence[Event], graph: OpGraph) -> list[float]:
    """ms of one call of each of :func:`_first_of_each`.

    Equal operators are one function of the library.  A name tells what is fused; of functions with equal names the first
    to run belongs to the first operator.
    """
    took: dict[str, float] = defaultdict(float)
    functions: dict[str, list[str]] = defaultdict(list)
    for event in events:
        match = _FUNCTION.match(event.name)
        if event.kind != "kernel" or match is None or not re.search("conv2d|dense", event.name):
            continue
        if event.name not in took:
            functions[_plain(match["operators"])].append(event.name)
        took[event.name] += (event.end_us - event.start_us) / 1e3
    firsts = _first_of_each(graph)
    calls = Counter(Workload.of(operator, graph).key for operator in graph.operators)
    times = []
    for key, operator in firsts.items():
        words = _plain("_".join(node.op.replace(".", "_") for node in operator.body))
        if not functions[words]:
            raise CheckFailed(f"the library has no function for {operator.name}", f"it has {sorted(took)}")
        times.append(took[functions[words].pop(0)] / calls[key])
    return times


def _plain(words: str) -> str:
    """Without what packed weights add to a name, and without reshapes, which are no kernels."""
    return re.sub("_reshape|_squeeze", "", words.replace("nn_contrib_dense_pack", "nn_dense"))
