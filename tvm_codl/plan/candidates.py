"""Candidates: the placements of each operator among which the search chooses, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.graph.split import Axis
from tvm_codl.plan.aligned import MOST_ALIGNED, MOST_WINDOWS, aligned
from tvm_codl.plan.plan import Placement
from tvm_codl.records.pieces import Pieces, add_halves
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

#: Cuts of one axis of one operator.
MOST_CUTS = 16
#: Those from which the cuts of the operators before follow.
LIKELY_CUTS = 3
_LATTICE = 10
_FINEST = 40
_UNITS = {"channels": (16, 8, 4)}
PROCESSORS: tuple[Processor, Processor] = ("cpu", "gpu")


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


@runtime_checkable
class Stepped(Protocol):
    """A cost model that knows the kernels: for each operator and axis, where their tiles end."""

    def steps(self, workloads: Sequence[Workload]) -> list[dict[str, int]]: ...


Axes = Mapping[int, Mapping[str, Axis]]


def candidates(
    graph: OpGraph,
    axes: Axes,
    model: Predictor,
    most_cuts: int = MOST_CUTS,
    windows: int = MOST_WINDOWS,
    most_aligned: int = MOST_ALIGNED,
) -> dict[int, tuple[Candidate, ...]]:
    """For each operator: ``cpu``, ``gpu``, then splits at no more than ``most_cuts`` cuts of each axis, and those that
    follow from the likely cuts of the operators behind it, overlaps included (:func:`.aligned.aligned`, with its bounds).

    Operators whose axis has the same name and extent get the same cuts, so that a run of them can be cut alike and
    nothing crosses in between.
    """
    wholes = Pieces(graph)
    for operator in graph.operators:
        wholes.add(operator)
    whole_cpu, whole_gpu = model.predict(wholes, "cpu"), model.predict(wholes, "gpu")
    times = {op.id: (float(c), float(g)) for op, c, g in zip(graph.operators, whole_cpu, whole_gpu, strict=True)}
    steps: list[dict[str, int]] = model.steps(wholes) if isinstance(model, Stepped) else [{} for _ in graph.operators]
    cuts, likely = _cuts(graph, axes, times, {o.id: s for o, s in zip(graph.operators, steps, strict=True)}, most_cuts)
    more = aligned(graph, axes, cuts, likely, windows, most_aligned)
    splits = {op.id: _splits(op, axes, cuts, more[op.id]) for op in graph.operators}
    # Many networks repeat a block: what is alike is predicted once.
    alike = {op.id: (whole.key, *splits[op.id]) for op, whole in zip(graph.operators, wholes.wholes, strict=True)}
    first = {key: id for id, key in reversed(alike.items())}
    own = {id: splits[id] for id in alike if first[alike[id]] == id}
    halves = _halves(wholes, own, axes)
    cpu, gpu = (_predict(part, own, model, on) for part, on in zip(halves, PROCESSORS, strict=True))
    found: dict[int, tuple[Candidate, ...]] = {}
    for operator in graph.operators:
        cpu_ms, gpu_ms = times[operator.id]
        alone = (Candidate(Placement("cpu"), cpu_ms, 0.0), Candidate(Placement("gpu"), 0.0, gpu_ms))
        found[operator.id] = alone + tuple(
            Candidate(placement, c, g)
            for placement, c, g in zip(
                splits[operator.id], cpu[first[alike[operator.id]]], gpu[first[alike[operator.id]]], strict=True
            )
        )
    return found


def legal_cuts(axis: Axis) -> range:
    """All cuts of an axis: multiples of its granule inside it."""
    return range(axis.granule, axis.extent, axis.granule)


def preferred_cuts(axis: Axis, shares: Sequence[float], most: int = MOST_CUTS, step: int = 0) -> tuple[int, ...]:
    """No more than ``most`` legal cuts: some even ones, and the rest around ``shares`` of the axis (0 to 1).

    Cuts lie at multiples of ``step``, where the tiles of the kernels end, if the axis has at least four of them.  Channels
    are otherwise cut at multiples of 16, 8 or 4 where the axis has four: kernels compute channels in vectors, and a part
    that does not fill its last one pays for it whole.
    """
    unit = step if step and step % _unit(axis) == 0 and axis.extent >= 4 * step else _unit(axis)
    legal = np.arange(unit, axis.extent, unit)
    if len(legal) <= most:
        return tuple(legal.tolist())
    chosen = set(legal[np.linspace(0, len(legal) - 1, min(_LATTICE, most)).round().astype(int)].tolist())
    far = np.zeros(len(legal))
    if shares:
        far = np.abs(legal[:, None] - np.array(shares) * axis.extent).min(axis=1)
    nearest = legal[np.lexsort((legal, far))]
    apart = max(unit, axis.extent // _FINEST)
    free = np.all([np.abs(nearest - other) >= apart for other in chosen], axis=0)
    while len(chosen) < most and free.any():
        at = int(nearest[np.argmax(free)])
        chosen.add(at)
        free &= np.abs(nearest - at) >= apart
    return tuple(sorted(chosen))


def _unit(axis: Axis) -> int:
    for unit in _UNITS.get(axis.name, ()):
        if unit % axis.granule == 0 and axis.extent >= 4 * unit:
            return unit
    return axis.granule


def _cuts(
    graph: OpGraph,
    axes: Axes,
    times: Mapping[int, tuple[float, float]],
    steps: Mapping[int, Mapping[str, int]],
    most: int,
) -> tuple[dict[tuple[int, str], tuple[int, ...]], dict[tuple[int, str], tuple[int, ...]]]:
    """Per operator and axis, all cuts, and those next to balanced points.

    Alike axes share the balanced points and the tiles of the operators that take the most time.
    """
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
    likely: dict[tuple[int, str], tuple[int, ...]] = {}
    for (name, extent, _), members in alike.items():
        members.sort()
        shares = [share for _, share, _ in members[:3]]
        step = next((found_step for _, _, id in members[:3] if (found_step := steps[id].get(name, 0))), 0)
        cut = preferred_cuts(axes[members[0][2]][name], shares, most, step)
        wanted = [share * extent for share in shares]
        near = sorted(cut, key=lambda at: (min(abs(at - want) for want in wanted), at))[:LIKELY_CUTS]
        found |= {(id, name): cut for _, _, id in members}
        likely |= {(id, name): tuple(near) for _, _, id in members}
    return found, likely


def _splits(
    operator: Operator, axes: Axes, cuts: Mapping[tuple[int, str], tuple[int, ...]], more: Sequence[Placement]
) -> list[Placement]:
    found: list[Placement] = []
    for name in axes.get(operator.id, {}):
        found += [Placement("split", name, at) for at in cuts.get((operator.id, name), ())]
        found += [placement for placement in more if placement.axis == name]
    return found


def _halves(wholes: Pieces, splits: Mapping[int, Sequence[Placement]], axes: Axes) -> tuple[Pieces, Pieces]:
    """Of every split the CPU's pieces, and the GPU's."""
    cpu, gpu = Pieces(wholes.graph, wholes), Pieces(wholes.graph, wholes)
    for operator in wholes.graph.operators:
        for name, axis in axes.get(operator.id, {}).items() if operator.id in splits else ():
            ends = [s.parts(axis.extent) for s in splits[operator.id] if s.axis == name]
            if ends:
                add_halves(cpu, gpu, operator, name, ends)
    return cpu, gpu


def _predict(
    pieces: Pieces, splits: Mapping[int, Sequence[Placement]], model: Predictor, processor: Processor
) -> dict[int, list[float]]:
    """One call of the model for all pieces of one processor."""
    times = iter(model.predict(pieces, processor).tolist() if len(pieces) else [])
    return {id: [next(times) for _ in placements] for id, placements in splits.items()}
