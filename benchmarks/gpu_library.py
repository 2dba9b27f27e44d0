"""A network's convolutions alone, as the tuner times them, and in the network's library, both by the GPU's own clock."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import isnan
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
#: TVM's names of a library's functions: a prefix, the fused operators, and a number where there are several.
_FUNCTION = re.compile(r"tvmgen_\w+?_fused_(?P<operators>\w+?)(?P<number>_\d+)?$")


def compare_network(model: str, session: Session) -> dict[str, Any]:
    """Each convolution of a network of the zoo: ms alone and in the library of the whole network on the GPU.

    Leaves out those whose function in the library is another (``left_out``).
    """
    prepared = prepare(load_model(f"zoo:{model}"))
    module = session.open(session.library(prepared, uniform_plan(prepared.graph, "gpu", prepared.name)))
    module.run(prepared.model.sample_inputs())
    runs = [_took(read_events(module.timeline())) for _ in range(RUNS)]
    inside = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
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
        alone = [OnPhone(session, library).kernels_ms() for library in built]
        matched = _matched(inside, alone, prepared.graph)
        for operator, each, alone_ms, library_ms in zip(firsts, wanted, alone, matched, strict=True):
            if isnan(library_ms):
                continue
            rows.append(
                {
                    "name": each.convolution.name,
                    "operator": operator.name,
                    "alone_ms": alone_ms,
                    "library_ms": library_ms,
                    "ratio": library_ms / alone_ms,
                }
            )
    finally:
        builder.close()
    ratio = float(np.exp(np.mean([np.log(row["ratio"]) for row in rows])))
    left_out = len(firsts) - len(rows)
    return {
        "model": model,
        "rows": rows,
        "ratio": ratio,
        "left_out": left_out,
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
    """ms of all calls of each of the library's functions with a convolution or product, by its name."""
    took: dict[str, float] = defaultdict(float)
    for event in events:
        if event.kind == "kernel" and _FUNCTION.match(event.name) and re.search("conv2d|dense", event.name):
            took[event.name] += (event.end_us - event.start_us) / 1e3
    return took


def _matched(took: Mapping[str, float], alone_ms: Sequence[float], graph: OpGraph) -> list[float]:
    """ms of one call of each of :func:`_first_of_each` in the library; NaN where the library's functions are others, as
    TVM may fuse the sum of two convolutions behind either.

    Equal operators are one function there.  A name tells what is fused; of functions with equal names, which TVM orders as
    it likes, the one that takes longest belongs to the operator that takes longest alone.
    """
    functions, operators = defaultdict(list), defaultdict(list)
    for name, ms in sorted(took.items(), key=lambda item: item[1]):
        match = _FUNCTION.match(name)
        assert match is not None
        functions[_plain(match["operators"])].append(ms)
    calls = Counter(Workload.of(operator, graph).key for operator in graph.operators)
    for index, (key, operator) in enumerate(_first_of_each(graph).items()):
        words = _plain("_".join(node.op.replace(".", "_") for node in operator.body))
        operators[words].append((alone_ms[index] * calls[key], index, calls[key]))
    result = [float("nan")] * len(alone_ms)
    for words, each in operators.items():
        if len(functions[words]) == len(each):
            for (_, index, count), ms in zip(sorted(each), functions[words], strict=True):
                result[index] = ms / count
    return result


def _plain(words: str) -> str:
    """Without what packed weights add to a name, and without reshapes, which are no kernels."""
    return re.sub("_reshape|_squeeze", "", words.replace("nn_contrib_dense_pack", "nn_dense"))
