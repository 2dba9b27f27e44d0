"""Candidates: the placements of each operator among which the search chooses, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.graph.split import Axis
from tvm_codl.plan.plan import Placement
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload, workloads

#: Cuts of one axis of one operator.
MOST_CUTS = 16
_LATTICE = 10
_FINEST = 40
_UNITS = {"channels": (16, 8, 4)}


class Candidate(msgspec.Struct, frozen=True):
    """A placement and the time of each processor's part, in milliseconds; a processor without a part takes 0."""

    placement: Placement
    cpu_ms: float
    gpu_ms: float

    @property
    def ms(self) -> float:
        """Both parts run at the same time."""
        return max(self.cpu_ms, self.gpu_ms)


class Predictor(Protocol):
    """What the search asks of a cost model."""

    def predict(self, workloads: Sequence[Workload], processor: Processor) -> NDArray[np.float64]: ...


Axes = Mapping[int, Mapping[str, Axis]]


def candidates(
    graph: OpGraph, axes: Axes, model: Predictor, most_cuts: int = MOST_CUTS
) -> dict[int, tuple[Candidate, ...]]:
    """For each operator: ``cpu``, ``gpu``, then splits at no more than ``most_cuts`` cuts of each axis.

    Operators whose axis has the same name and extent get the same cuts, so that a run of them can be cut alike and
    nothing crosses in between.
    """
    whole_cpu = model.predict([Workload.of(operator, graph) for operator in graph.operators], "cpu")
    whole_gpu = model.predict([Workload.of(operator, graph) for operator in graph.operators], "gpu")
    times = {op.id: (float(c), float(g)) for op, c, g in zip(graph.operators, whole_cpu, whole_gpu, strict=True)}
    cuts = _cuts(graph, axes, times, most_cuts)
    splits = {op.id: _splits(op, axes, cuts) for op in graph.operators}
    cpu = _predict(graph, splits, axes, model, "cpu")
    gpu = _predict(graph, splits, axes, model, "gpu")
    found: dict[int, tuple[Candidate, ...]] = {}
    for operator in graph.operators:
        cpu_ms, gpu_ms = times[operator.id]
        wholes = (Candidate(Placement("cpu"), cpu_ms, 0.0), Candidate(Placement("gpu"), 0.0, gpu_ms))
        found[operator.id] = wholes + tuple(
            Candidate(placement, c, g)
            for placement, c, g in zip(splits[operator.id], cpu[operator.id], gpu[operator.id], strict=True)
        )
    return found


def legal_cuts(axis: Axis) -> range:
    """All cuts of an axis: multiples of its granule inside it."""
    return range(axis.granule, axis.extent, axis.granule)


def preferred_cuts(axis: Axis, shares: Sequence[float], most: int = MOST_CUTS) -> tuple[int, ...]:
    """No more than ``most`` legal cuts: some even ones, and the rest around ``shares`` of the axis (0 to 1).

    Channels are cut at multiples of 16, 8 or 4 where the axis has at least four of them: kernels compute channels
    in vectors, and a part that does not fill its last one pays for it whole.
    """
    unit = _unit(axis)
    legal = list(range(unit, axis.extent, unit))
    if len(legal) <= most:
        return tuple(legal)
    even = np.linspace(0, len(legal) - 1, min(_LATTICE, most)).round().astype(int)
    chosen = {legal[int(i)] for i in even}
    wanted = [share * axis.extent for share in shares]
    near = sorted(legal, key=lambda at: (min((abs(at - want) for want in wanted), default=0.0), at))
    apart = max(unit, axis.extent // _FINEST)
    for at in near:
        if len(chosen) < most and all(abs(at - other) >= apart for other in chosen):
            chosen.add(at)
    return tuple(sorted(chosen))


def _unit(axis: Axis) -> int:
    for unit in _UNITS.get(axis.name, ()):
        if unit % axis.granule == 0 and axis.extent >= 4 * unit:
            return unit
    return axis.granule


def _cuts(
    graph: OpGraph, axes: Axes, times: Mapping[int, tuple[float, float]], most: int
) -> dict[tuple[int, str], tuple[int, ...]]:
    """Per operator and axis.  Alike axes share the balanced points of the operators that take the most time."""
    alike: dict[tuple[str, int, int], list[tuple[float, float, int]]] = {}
    for operator in graph.operators:
        cpu_ms, gpu_ms = times[operator.id]
        if not (0 < cpu_ms < np.inf and 0 < gpu_ms < np.inf):
            continue
        gain = 1 / (1 / cpu_ms + 1 / gpu_ms)
        for axis in axes.get(operator.id, {}).values():
            group = alike.setdefault((axis.name, axis.extent, _unit(axis)), [])
            group.append((-gain, gpu_ms / (cpu_ms + gpu_ms), operator.id))
    found: dict[tuple[int, str], tuple[int, ...]] = {}
    for (name, _, _), members in alike.items():
        members.sort()
        shares = [share for _, share, _ in members[:3]]
        for _, _, id in members:
            found[id, name] = preferred_cuts(axes[id][name], shares, most)
    return found


def _splits(operator: Operator, axes: Axes, cuts: Mapping[tuple[int, str], tuple[int, ...]]) -> list[Placement]:
    return [
        Placement("split", name, at) for name in axes.get(operator.id, {}) for at in cuts.get((operator.id, name), ())
    ]


def _predict(
    graph: OpGraph, splits: Mapping[int, Sequence[Placement]], axes: Axes, model: Predictor, processor: Processor
) -> dict[int, list[float]]:
    """One call of the model for all pieces of one processor."""
    every: list[Workload] = []
    for operator in graph.operators:
        every += workloads(
            operator,
            graph,
            [
                (s.axis, 0, s.at) if processor == "cpu" else (s.axis, s.at, axes[operator.id][s.axis].extent)
                for s in splits[operator.id]
            ],
        )
    times = iter(model.predict(every, processor).tolist() if every else [])
    return {operator.id: [next(times) for _ in splits[operator.id]] for operator in graph.operators}
