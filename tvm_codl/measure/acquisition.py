"""Acquisition: which pieces to measure next, by how much their outcome is expected to improve the plan.

The cost model gives every piece a time and a deviation.  From these we draw many sets of times (Thompson sampling: W. R.
Thompson, *Biometrika* 25, 1933) and find the best plan for each.  What these save on average over today's plan bounds what
measuring can still gain (expected value of perfect information: Raiffa and Schlaifer, *Applied Statistical Decision Theory*,
1961).  Where a drawn plan moves an operator, its pieces share the saving by how much each one's drawn time changes the
operator's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.measure.probe import Probe
from tvm_codl.plan.candidates import PROCESSORS, Axes, Candidate
from tvm_codl.plan.costs import Costs
from tvm_codl.plan.eliminate import evaluate, minimise
from tvm_codl.plan.plan import Plan
from tvm_codl.records.pieces import Pieces
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

Rows = NDArray[np.float64]
Numbers = NDArray[np.intp]

#: Sets of times that choose measurements; and where there will be none, only to say what is left to gain.
DRAWS, FEW_DRAWS = 64, 16
#: Of each draw's search, so that all of them take no more than some seconds for any graph.
EFFORT = 1 / 8
#: Natural logarithm of the ratio of two pieces' sizes at which their errors are still alike to 1/e.
ALIKE = 0.7
#: A piece's logarithm is doubted by this share of how far its prediction is from the even share of its operator's time.
#: Of 75 pieces of ResNet-18 that were predicted at more than twice, or less than half of it, from a tenth of the grid's
#: measurements, half were wrong by more than 0.5, where the model's own deviation was 0.13.
DOUBT = 0.4


class Estimator(Protocol):
    """What is asked of a cost model: times in ms with the deviation of their logarithms, and which are measurements."""

    def estimate(self, workloads: Sequence[Workload], processor: Processor) -> tuple[Rows, Rows]: ...

    def measured(self, key: str, processor: Processor) -> bool: ...


class Wanted(msgspec.Struct, frozen=True):
    """A measurement, what it is predicted to find, and its part of what there is to gain."""

    probe: Probe
    ms: float
    gain_ms: float


class Acquisition(msgspec.Struct, frozen=True):
    """``gain_ms``: what perfect knowledge would save of the plan's time.  ``probes``: the best first, no two of one
    operator, axis and processor, for the second would learn what the first did."""

    gain_ms: float
    probes: tuple[Wanted, ...]


class _Part(msgspec.Struct, frozen=True):
    """One processor's part of some operators' candidates; ``sigma`` is 0 where it was measured."""

    probe: Probe
    group: tuple[str, str, str]
    size: int
    ms: float
    sigma: float


def acquire(
    graph: OpGraph,
    axes: Axes,
    choices: Mapping[int, Sequence[Candidate]],
    costs: Costs,
    plan: Plan,
    model: Estimator,
    seed: int = 0,
    draws: int = DRAWS,
) -> Acquisition:
    """What to measure next for a plan over ``choices`` with the tables ``costs``.  Deterministic for equal arguments."""
    parts, slots = _parts(graph, axes, choices, model)
    placed = [[c.placement for c in choices[operator.id]] for operator in graph.operators]
    today = [options.index(line.placement) for options, line in zip(placed, plan.operators, strict=True)]
    predicted = _times(np.array([part.ms for part in parts]), slots)
    score = np.zeros(len(parts) + 1)
    gain = 0.0
    for draw in _draw(parts, draws, np.random.default_rng(seed)):
        drawn = _times(draw, slots)
        with np.errstate(invalid="ignore"):
            nodes = [
                # What cannot run stays so: infinity less infinity changes nothing.
                table + np.nan_to_num(now.max(axis=0) - before.max(axis=0), nan=0.0, posinf=0.0, neginf=0.0)
                for table, now, before in zip(costs.nodes, drawn, predicted, strict=True)
            ]
        best = minimise(nodes, costs.edges, effort=EFFORT)
        saved = evaluate(today, nodes, costs.edges) - best.total
        if saved > 0:
            gain += saved / draws
            _credit(score, saved / draws, today, best.choice, slots, predicted, drawn)
    return Acquisition(gain, _ranked(parts, score))


def _credit(
    score: Rows,
    saved: float,
    today: Sequence[int],
    best: Sequence[int],
    slots: Sequence[Numbers],
    predicted: Sequence[Rows],
    drawn: Sequence[Rows],
) -> None:
    """Shares ``saved`` among the parts of the placements in which two plans differ: by how much longer or shorter each
    makes its operator, the other processor's part being as predicted."""
    effects: list[tuple[int, float]] = []
    for node, (now, then) in enumerate(zip(today, best, strict=True)):
        for choice in (now, then) if now != then else ():
            cpu, gpu = predicted[node][:, choice]
            changed = (max(drawn[node][0, choice], gpu), max(cpu, drawn[node][1, choice]))
            effects += [(int(slots[node][side, choice]), abs(changed[side] - max(cpu, gpu))) for side in (0, 1)]
    total = sum(effect for _, effect in effects)
    for part, effect in effects if total > 0 else ():
        score[part] += saved * effect / total


def _ranked(parts: Sequence[_Part], score: Rows) -> tuple[Wanted, ...]:
    best: dict[tuple[str, str, str], Wanted] = {}
    for index in sorted(range(len(parts)), key=lambda i: (-score[i], parts[i].probe.key, parts[i].probe.processor)):
        if score[index] > 0:
            best.setdefault(parts[index].group, Wanted(parts[index].probe, parts[index].ms, float(score[index])))
    return tuple(best.values())


def _parts(
    graph: OpGraph, axes: Axes, choices: Mapping[int, Sequence[Candidate]], model: Estimator
) -> tuple[list[_Part], list[Numbers]]:
    """Every distinct piece of every candidate; and for each operator which of them its candidates consist of, shape
    (2 processors, candidates), where one past the last stands for no part."""
    parts: list[_Part] = []
    slots = [np.full((2, len(choices[operator.id])), -1) for operator in graph.operators]
    for side, processor in enumerate(PROCESSORS):
        pieces, places = Pieces(graph), list[tuple[int, int, int, int]]()  # node, candidate, first unit, end
        for node, operator in enumerate(graph.operators):
            ends: dict[str, list[tuple[int, int, int]]] = {}
            for index, candidate in enumerate(choices[operator.id]):
                for on, lo, hi in candidate.placement.pieces(axes.get(operator.id, {})):
                    if on == processor:
                        ends.setdefault(candidate.placement.axis, []).append((index, lo, hi))
            for axis, chosen in ends.items():
                indices, los, his = zip(*chosen, strict=True)
                pieces.add(operator, axis, los, his)
                places += zip(itertools.repeat(node), indices, los, his)
        times, sigmas = (values.tolist() for values in model.estimate(pieces, processor))
        numbers: dict[str, int] = {}
        described = zip(places, pieces.keys, pieces.axes, pieces.whole_of, times, sigmas, strict=True)
        for (node, index, lo, hi), key, axis, whole, ms, sigma in described:
            if key not in numbers:
                numbers[key] = len(parts)
                operator = graph.operators[node]
                alone = choices[operator.id][side]
                whole_ms = (alone.cpu_ms, alone.gpu_ms)[side]
                even_ms = whole_ms * (hi - lo) / axes[operator.id][axis].extent if axis else 0.0
                sure = model.measured(key, processor) or not math.isfinite(ms)
                group = (pieces.wholes[whole].key, axis, processor)
                probe = Probe(operator.id, processor, key, axis, lo, hi)
                parts.append(_Part(probe, group, hi - lo, ms, 0.0 if sure else doubt(sigma, ms, even_ms)))
            slots[node][side, index] = numbers[key]
    for each in slots:
        each[each < 0] = len(parts)
    return parts, slots


def doubt(sigma: float, ms: float, even_ms: float) -> float:
    """The deviation of a piece's logarithm, given the model's own, where its even share would be ``even_ms``.

    The further from it, the more a prediction rests on what the model believes of cuts, and the less on a measurement.
    Without an even share (0, infinite, or a whole operator) it is the model's own.
    """
    if not (0 < even_ms < math.inf and ms > 0):
        return sigma
    return math.hypot(sigma, DOUBT * math.log(ms / even_ms))


def _draw(parts: Sequence[_Part], draws: int, random: np.random.Generator) -> Rows:
    """Times of all parts, shape (draws, parts), log-normal.

    Errors of pieces along one axis are alike where their sizes are (an Ornstein-Uhlenbeck process over the logarithm of
    the size), so that sixteen cuts are not sixteen chances of luck.
    """
    normal = random.standard_normal((draws, len(parts)))
    groups: dict[tuple[str, str, str], list[int]] = {}
    for index, part in enumerate(parts):
        groups.setdefault(part.group, []).append(index)
    for members in groups.values():
        members.sort(key=lambda i: parts[i].size)
        for left, right in itertools.pairwise(members):
            alike = np.exp(-np.log(max(parts[right].size, 1) / max(parts[left].size, 1)) / ALIKE)
            normal[:, right] = alike * normal[:, left] + np.sqrt(1 - alike**2) * normal[:, right]
    ms, sigma = np.array([part.ms for part in parts]), np.array([part.sigma for part in parts])
    result: Rows = ms * np.exp(sigma * normal)
    return result


def _times(ms: Rows, slots: Sequence[Numbers]) -> list[Rows]:
    """For each operator the times of its candidates' parts, shape (2 processors, candidates)."""
    padded = np.append(ms, 0.0)
    return [padded[each] for each in slots]
