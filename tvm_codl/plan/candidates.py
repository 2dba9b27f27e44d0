"""Candidates: the placements of each operator among which the search chooses, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
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
#: Cuts of one axis from which cuts of the operators before follow (:mod:`.aligned`).
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
    """The search's view of a cost model: milliseconds for each workload."""

    def predict(self, workloads: Sequence[Workload], processor: Processor) -> NDArray[np.float64]: ...


@runtime_checkable
class Stepped(Protocol):
    """A cost model that knows kernel tiles: for each operator the tile size in units of each axis."""

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
    """For each operator: ``cpu``, ``gpu``, then splits at up to ``most_cuts`` cuts of each axis, and those aligned with the
    likely cuts of the operators behind it, with halo recompute (:func:`.aligned.aligned`, with its bounds).

    Axes of the same name and extent get the same cuts, so that a run of operators can be cut alike without transfers.
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
    # Networks repeat blocks: predict equal operators with equal splits once.
    keys = {op.id: (whole.key, *splits[op.id]) for op, whole in zip(graph.operators, wholes.wholes, strict=True)}
    first = {key: op for op in reversed(graph.operators) for key in (keys[op.id],)}
    wanted = [(op, split) for op in graph.operators if first[keys[op.id]] is op for split in splits[op.id]]
    predicted: dict[int, list[Candidate]] = {op.id: [] for op in graph.operators}
    for (op, _), candidate in zip(wanted, predict_splits(graph, axes, model, wanted, wholes), strict=True):
        predicted[op.id].append(candidate)
    return {
        id: (
            Candidate(Placement("cpu"), cpu_ms, 0.0),
            Candidate(Placement("gpu"), 0.0, gpu_ms),
            *predicted[first[keys[id]].id],
        )
        for id, (cpu_ms, gpu_ms) in times.items()
    }


def predict_splits(
    graph: OpGraph,
    axes: Axes,
    model: Predictor,
    wanted: Sequence[tuple[Operator, Placement]],
    like: Pieces | None = None,
) -> list[Candidate]:
    """Splits of operators with their predicted times, in the order of ``wanted``; one call of the model a processor.

    ``like``: pieces of the same network, whose operators need not be described again.
    """
    cpu, gpu = Pieces(graph, like), Pieces(graph, like)
    for (_, name), group in groupby(wanted, key=lambda pair: (pair[0].id, pair[1].axis)):
        pairs = list(group)
        operator = pairs[0][0]
        ends = [split.parts(axes[operator.id][name].extent) for _, split in pairs]
        add_halves(cpu, gpu, operator, name, ends)
    if not wanted:
        return []
    times = zip(wanted, model.predict(cpu, "cpu").tolist(), model.predict(gpu, "gpu").tolist(), strict=True)
    return [Candidate(split, cpu_ms, gpu_ms) for (_, split), cpu_ms, gpu_ms in times]


def legal_cuts(axis: Axis) -> range:
    """All cuts of an axis: multiples of its granule inside it."""
    return range(axis.granule, axis.extent, axis.granule)


def preferred_cuts(axis: Axis, shares: Sequence[float], most: int = MOST_CUTS, step: int = 0) -> tuple[int, ...]:
    """Up to ``most`` legal cuts: some evenly spaced, the rest around ``shares`` of the axis (0 to 1).

    Cuts lie at multiples of ``step``, the kernels' tile, if the axis has at least four; channels otherwise at multiples of
    16, 8 or 4 if it has four of those: kernels compute whole vectors of channels.
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
    """Per operator and axis, all cuts, and those nearest to the balance of both processors.

    Equal axes share the balance points and tiles of their most expensive operators.
    """
    groups: dict[tuple[str, int, int], list[tuple[float, float, int]]] = {}
    for operator in graph.operators:
        cpu_ms, gpu_ms = times[operator.id]
        if not (0 < cpu_ms < np.inf and 0 < gpu_ms < np.inf):
            continue
        gain = 1 / (1 / cpu_ms + 1 / gpu_ms)
        for axis in axes.get(operator.id, {}).values():
            group = groups.setdefault((axis.name, axis.extent, _unit(axis)), [])
            group.append((-gain, gpu_ms / (cpu_ms + gpu_ms), operator.id))
    cuts: dict[tuple[int, str], tuple[int, ...]] = {}
    likely: dict[tuple[int, str], tuple[int, ...]] = {}
    for (name, extent, _), members in groups.items():
        members.sort()
        shares = [share for _, share, _ in members[:3]]
        step = next((tile for _, _, id in members[:3] if (tile := steps[id].get(name, 0))), 0)
        cut = preferred_cuts(axes[members[0][2]][name], shares, most, step)
        wanted = [share * extent for share in shares]
        near = sorted(cut, key=lambda at: (min(abs(at - want) for want in wanted), at))[:LIKELY_CUTS]
        cuts |= {(id, name): cut for _, _, id in members}
        likely |= {(id, name): tuple(near) for _, _, id in members}
    return cuts, likely


def _splits(
    operator: Operator, axes: Axes, cuts: Mapping[tuple[int, str], tuple[int, ...]], more: Sequence[Placement]
) -> list[Placement]:
    splits: list[Placement] = []
    for name in axes.get(operator.id, {}):
        splits += [Placement("split", name, at) for at in cuts.get((operator.id, name), ())]
        splits += [placement for placement in more if placement.axis == name]
    return splits
