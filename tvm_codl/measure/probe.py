"""What can be measured: an operator, or a piece of one, on one processor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import msgspec

from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.graph.split import Axis, NoSplit, Piece, piece, whole
from tvm_codl.plan.candidates import PROCESSORS
from tvm_codl.plan.plan import Placement
from tvm_codl.records.record import Processor, Record
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

    def piece(self, graph: OpGraph) -> Piece:
        """What runs.  Raises :class:`NoSplit` for a piece that no split rule makes."""
        operator = graph.operators[self.operator]
        return piece(operator, graph, self.axis, self.lo, self.hi) if self.axis else whole(operator, graph)


def whole_probes(graph: OpGraph) -> list[Probe]:
    """Every distinct operator on both processors."""
    wholes = [(operator.id, Workload.of(operator, graph).key) for operator in graph.operators]
    return _distinct(Probe(id, processor, key) for id, key in wholes for processor in PROCESSORS)


def split_probes(
    graph: OpGraph, axes: Mapping[int, Mapping[str, Axis]], placements: Iterable[tuple[int, Placement]]
) -> list[Probe]:
    """Both pieces of each split ``(operator id, placement)``; equal pieces once."""
    operators = {o.id: o for o in graph.operators}
    return _distinct(
        Probe(id, processor, Workload.of(operators[id], graph, place.axis, lo, hi).key, place.axis, lo, hi)
        for id, place in placements
        if place.on == "split"
        for processor, lo, hi in place.pieces(axes[id])
    )


def failed_probes(graph: OpGraph, records: Iterable[Record]) -> list[Probe]:
    """The pieces of a network that failed, by ``records`` of whatever network; without those that no split rule makes any
    more."""
    heads: dict[str, Operator] = {}  # a piece's key begins as its operator's
    for operator in graph.operators:
        key = Workload.of(operator, graph).key
        heads.setdefault(key[: key.rindex('"cut":')], operator)
    probes = []
    for record in records:
        head = record.workload.rpartition('"cut":')[0]
        if record.ok or head not in heads:
            continue
        operator, part = heads[head], record.piece
        with contextlib.suppress(NoSplit):
            if Workload.of(operator, graph, part.axis, part.lo, part.hi).key == record.workload:
                probes.append(Probe(operator.id, record.processor, record.workload, part.axis, part.lo, part.hi))
    return _distinct(probes)


def _distinct(probes: Iterable[Probe]) -> list[Probe]:
    """The first probe of each key and processor."""
    first: dict[tuple[str, Processor], Probe] = {}
    for probe in probes:
        first.setdefault((probe.key, probe.processor), probe)
    return list(first.values())
