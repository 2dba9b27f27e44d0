"""The kernels of a network or a plan, and how much of its time each takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import tvm
from tvm import relay

from tvm_codl.graph.names import anchor_of
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import Axis
from tvm_codl.kernels.tiles.winograd import STAND_IN
from tvm_codl.kernels.workloads import workloads
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.plan.plan import Plan
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload
from tvm_codl.relay.piece import piece_body

#: The operators for which we have kernels with knobs.
TUNED = ("nn.conv2d", "nn.dense", "nn.batch_matmul")


class Kernel(msgspec.Struct, frozen=True):
    """An AutoTVM workload on a processor; ``ms`` is the predicted time of the operators and pieces that run it, 0 if
    nothing was predicted."""

    processor: Processor
    workload: tuple[Any, ...]
    ms: float = 0.0


def network_probes(graph: OpGraph, processors: Iterable[str]) -> list[tuple[Probe, float]]:
    """Every distinct operator, whole, on each of ``processors``."""
    return [(probe, 0.0) for probe in whole_probes(graph) if probe.processor in set(processors)]


def plan_probes(
    plan: Plan, graph: OpGraph, axes: Mapping[int, Mapping[str, Axis]], processors: Iterable[str]
) -> list[tuple[Probe, float]]:
    """The pieces of a verified plan, each with its predicted time in ms."""
    probes = []
    for planned in plan.operators:
        operator, place = graph.operators[planned.operator], planned.placement
        for processor, lo, hi in place.pieces(axes.get(operator.id, {})):
            if processor in set(processors):
                key = Workload.of(operator, graph, place.axis, lo, hi).key
                ms = planned.planned_ms or {"cpu": planned.cpu_ms, "gpu": planned.gpu_ms}[processor]
                probes.append((Probe(operator.id, processor, key, place.axis, lo, hi), ms))
    return probes


def kernels(
    graph: OpGraph, probes: Iterable[tuple[Probe, float]], targets: Mapping[str, tvm.target.Target]
) -> list[Kernel]:
    """The distinct kernels of ``probes`` that have knobs; those that take longest first."""
    asked: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    times: dict[tuple[Processor, tuple[Any, ...]], float] = {}
    for probe, ms in probes:
        body = graph.operators[probe.operator].body
        if body[anchor_of(body)].op not in TUNED:
            continue
        place = (probe.key, probe.processor)
        if place not in asked:
            asked[place] = workloads(_module(graph, probe), targets[probe.processor])
        for workload in asked[place]:
            key = (probe.processor, workload)
            times[key] = times.get(key, 0.0) + ms / len(asked[place])
    distinct = [Kernel(processor, workload, ms) for (processor, workload), ms in times.items()]
    return sorted(distinct, key=lambda kernel: -kernel.ms)


class _Placeholders:
    """Stands for :class:`~tvm_codl.relay.piece.WeightSlices`: a kernel does not depend on the weights' values."""

    def __init__(self, shapes: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
        self.shapes = shapes
        self.params: list[relay.Var] = []

    def constant(self, key: str, part: Any) -> relay.Expr:
        shape, dtype = self.shapes[key]
        if part is not None:
            shape = (*shape[: part.axis], part.hi - part.lo, *shape[part.axis + 1 :])
        if np.prod(shape, dtype=np.int64) <= 1:
            return relay.const(np.ones(shape, dtype))
        self.params.append(relay.var(f"{STAND_IN}{len(self.params)}", shape=shape, dtype=dtype))
        return self.params[-1]


def _module(graph: OpGraph, probe: Probe) -> tvm.IRModule:
    operator = graph.operators[probe.operator]
    part = probe.piece(graph)
    feeds = [
        relay.var(f"input{i}", shape=shape, dtype=graph.tensors[tensor].dtype)
        for i, (shape, tensor) in enumerate(zip(part.feed_shapes, part.operator.inputs, strict=True))
    ]
    weights = _Placeholders({const.key: (const.shape, const.dtype) for const in operator.consts})
    results = piece_body(part, feeds, weights)  # type: ignore[arg-type]
    body = results[0] if len(results) == 1 else relay.Tuple(results)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([*feeds, *weights.params], body)))
