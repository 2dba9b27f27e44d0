"""What can be measured: an operator, or a piece of one, on one processor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import Axis
from tvm_codl.plan.plan import Placement
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload


class Probe(msgspec.Struct, frozen=True):
    """Units ``[lo, hi)`` of ``axis`` of an operator's output on ``processor``; an empty axis is the whole operator.

    ``key`` is the workload's canonical key: probes of equal key measure the same thing.
    """

    operator: int
    processor: Processor
    key: str
    axis: str = ""
    lo: int = 0
    hi: int = 0


def whole_probes(graph: OpGraph) -> list[Probe]:
    """Every distinct operator on both processors."""
    found: dict[tuple[str, Processor], Probe] = {}
    for operator in graph.operators:
        key = Workload.of(operator, graph).key
        for processor in ("cpu", "gpu"):
            found.setdefault((key, processor), Probe(operator.id, processor, key))
    return list(found.values())


def split_probes(
    graph: OpGraph, axes: Mapping[int, Mapping[str, Axis]], placements: Iterable[tuple[int, Placement]]
) -> list[Probe]:
    """Both pieces of each split ``(operator id, placement)``; equal pieces once."""
    operators = {o.id: o for o in graph.operators}
    found: dict[tuple[str, Processor], Probe] = {}
    for id, placement in placements:
        if placement.on != "split":
            continue
        parts = placement.parts(axes[id][placement.axis].extent)
        for processor, (lo, hi) in zip(("cpu", "gpu"), parts, strict=True):
            key = Workload.of(operators[id], graph, placement.axis, lo, hi).key
            found.setdefault((key, processor), Probe(id, processor, key, placement.axis, lo, hi))  # type: ignore[arg-type]
    return list(found.values())
