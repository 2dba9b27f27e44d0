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
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload, workloads

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

    def measured(self, workload: Workload, processor: Processor) -> bool: ...


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
    distinct: dict[tuple[str, Processor], tuple[int, Workload, Probe, float]] = {}
    slots = [np.full((2, len(choices[operator.id])), -1) for operator in graph.operators]
    for node, operator in enumerate(graph.operators):
        for side, processor in enumerate(PROCESSORS):
            wanted = {
                index: (candidate.placement.axis, lo, hi)
                for index, candidate in enumerate(choices[operator.id])
                for on, lo, hi in candidate.placement.pieces(axes.get(operator.id, {}))
                if on == processor
            }
            whole_ms = (choices[operator.id][0].cpu_ms, choices[operator.id][1].gpu_ms)[side]
            described = workloads(operator, graph, wanted.values())
            for (index, units), workload in zip(wanted.items(), described, strict=True):
                probe = Probe(operator.id, processor, workload.key, *units)
                even_ms = whole_ms * (probe.hi - probe.lo) / axes[operator.id][probe.axis].extent if probe.axis else 0.0
                piece = (len(distinct), workload, probe, even_ms)
                slots[node][side, index] = distinct.setdefault((workload.key, processor), piece)[0]
    parts: dict[int, _Part] = {}
    for processor in PROCESSORS:
        mine = [piece for (_, on), piece in distinct.items() if on == processor]
        times, sigmas = model.estimate([workload for _, workload, *_ in mine], processor)
        for (number, workload, probe, even_ms), ms, sigma in zip(mine, times.tolist(), sigmas.tolist(), strict=True):
            group = ((workload.whole or workload).key, probe.axis, processor)
            sure = model.measured(workload, processor) or not np.isfinite(ms)
            parts[number] = _Part(probe, group, probe.hi - probe.lo, ms, 0.0 if sure else doubt(sigma, ms, even_ms))
    for each in slots:
        each[each < 0] = len(parts)
    return [parts[number] for number in range(len(parts))], slots


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
