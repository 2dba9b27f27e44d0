"""Plan-guided measuring: measure a little, fit, plan, measure where the plan is close or unsure, and again.

First come the whole operators: all on the CPU, and on the GPU those that take long enough to matter.  Each round then
fits the cost model to every record that there is, plans, and measures the pieces most worth it (:mod:`.worth`), until the
plan stands, until nothing is left to gain, or until the budget ends.  Every record is kept as soon as it is measured, and
what is on record is not measured again: a loop that was interrupted goes on where it was.  Given the same records it does
the same.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from tvm_codl.cost.model import CostModel
from tvm_codl.cost.sharing import SharingCost
from tvm_codl.errors import UsageError
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.graph.split import Axis
from tvm_codl.measure.acquisition import worth
from tvm_codl.measure.budget import Budget, Purse
from tvm_codl.measure.probe import Probe, failed_probes, split_probes, whole_probes
from tvm_codl.plan.candidates import Candidate, Predictor, candidates
from tvm_codl.plan.costs import build_costs
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.search import search
from tvm_codl.records.record import ErrorNo, Processor, Record
from tvm_codl.records.workload import Workload

Log = Callable[[str], None]
Axes = Mapping[int, Mapping[str, Axis]]
Key = tuple[str, Processor]
Fit = Callable[[Iterable[Record]], CostModel]

#: An operator that takes less than this share of the network's CPU time is not measured on the GPU to begin with.
WORTH_MEASURING = 0.01
#: A budget of time measures at least this many pieces, or there is no plan to speak of.
FEWEST_PIECES = 32
#: Measurements of one round: a third of what is left, within these.
SMALLEST_ROUND, LARGEST_ROUND = 8, 48
#: The plan stands when it is the same this many rounds in turn, or when this share of its time is left to gain.
STANDS_ROUNDS = 2
STANDS_GAIN = 0.002


class Meter(Protocol):
    """What is asked of a measuring session: a record of each probe, failed ones too.  ``predicted_ms`` bounds how long one
    may take on the phone.  What failed before is measured only with ``retry_failed``."""

    def measure(
        self, probes: Sequence[Probe], predicted_ms: Sequence[float | None] | None = None, *, retry_failed: bool = False
    ) -> Sequence[Record]: ...


class Round(msgspec.Struct, frozen=True):
    """``gained_ms``: the last round's plan against this one's, both as predicted now.  ``moved``: operators that are
    placed otherwise than in the last round's.  ``gain_ms``: what more measuring may save at the most, on average."""

    number: int
    predicted_ms: float
    gained_ms: float
    moved: int
    measured: int
    gain_ms: float

    def __str__(self) -> str:
        moved = f"{self.moved} operators moved, {self.gained_ms:.3f} ms gained" if self.number else "first plan"
        return (
            f"round {self.number}: predicted {self.predicted_ms:.2f} ms, {moved}; "
            f"{self.measured} measurements, {self.gain_ms:.3f} ms more to gain"
        )


class Guided(msgspec.Struct, frozen=True):
    """``measured`` counts new measurements; ``why`` says what ended the loop: ``stands``, ``budget`` or ``all measured``."""

    plan: Plan
    model: CostModel
    rounds: tuple[Round, ...]
    measured: int
    why: str


def guide(
    graph: OpGraph,
    axes: Axes,
    meter: Meter,
    sharing: SharingCost,
    budget: Budget,
    *,
    fit: Fit,
    known: Iterable[Record] = (),
    name: str = "",
    device: str = "",
    log: Log = lambda _: None,
    retry_failed: bool = False,
) -> Guided:
    """Measures within ``budget`` and returns the plan that the measurements end in.  ``known`` are the records of this
    device and build that there are already, of whatever network; ``fit`` makes a cost model of records and knows
    the device that they are of.  With ``retry_failed`` what failed of this network is measured again after the whole
    operators; what the budget does not allow stays failed.

    A number of measurements is kept exactly.  A budget of time always measures the whole operators and
    ``FEWEST_PIECES`` pieces, and ends at the first round after it.  Raises :class:`UsageError` for a budget of fewer
    than two measurements where nothing is known.
    """
    loop = _Loop(graph, axes, meter, Purse(budget), {(r.workload, r.processor): r for r in known}, log)
    loop.operators()
    if retry_failed:
        loop.failures()
    loop.say_what_nothing_runs_on()
    rounds: list[Round] = []
    plan, unmoved = None, 0
    while True:
        model = fit(loop.known.values())
        choices = _with(plan, graph, axes, model, candidates(graph, axes, model))
        costs = build_costs(graph, choices, sharing, axes)
        before, old = plan, _numbers(plan, choices) if plan else ()
        plan = search(graph, choices, sharing, axes, name, device, starts=[old] if before else ()).plan
        valued = worth(graph, axes, choices, costs, plan, model, seed=len(rounds))
        moved, gained = 0, 0.0
        if before is not None:
            pairs = list(zip(before.operators, plan.operators, strict=True))
            moved = sum(a.placement != b.placement for a, b in pairs)
            then, now = (costs.simulate(choice) for choice in (old, _numbers(plan, choices)))
            gained = then.total_ms - now.total_ms
        rounds.append(Round(len(rounds), plan.predicted_ms, gained, moved, loop.purse.taken, valued.gain_ms))
        log(str(rounds[-1]))
        unmoved = unmoved + 1 if before is not None and not moved else 0
        if unmoved >= STANDS_ROUNDS or valued.gain_ms < STANDS_GAIN * plan.predicted_ms:
            return Guided(plan, model, tuple(rounds), loop.purse.taken, "stands")
        size = loop.round_size()
        if size == 0 or not valued.probes:
            return Guided(plan, model, tuple(rounds), loop.purse.taken, "all measured" if size else "budget")
        loop.take([one.probe for one in valued.probes[:size]], [one.ms for one in valued.probes[:size]])


class _Loop:
    """What is known, and what may still be measured."""

    def __init__(
        self, graph: OpGraph, axes: Axes, meter: Meter, purse: Purse, known: dict[Key, Record], log: Log
    ) -> None:
        self.graph, self.axes, self.meter, self.purse, self.known, self.log = graph, axes, meter, purse, known, log
        self._pieces = 0
        self._taken: set[Key] = set()

    def take(
        self, probes: Sequence[Probe], predicted_ms: Sequence[float] | None = None, retry_failed: bool = False
    ) -> None:
        """Measures ``probes``, none of which is known, but as a failure with ``retry_failed``."""
        if not probes:
            return
        before = time.monotonic()
        for record in self.meter.measure(probes, predicted_ms, retry_failed=retry_failed):
            self.known[record.workload, record.processor] = record
        self.purse.spend(len(probes), time.monotonic() - before)
        self._pieces += sum(bool(probe.axis) for probe in probes)
        self._taken.update((probe.key, probe.processor) for probe in probes)

    def round_size(self) -> int:
        left = self.purse.left
        if self.purse.budget.measurements == math.inf:
            left = max(left, FEWEST_PIECES - self._pieces)
        return min(left, LARGEST_ROUND, max(SMALLEST_ROUND, left // 3))

    def failures(self) -> None:
        """What failed before this run, again, as far as the budget goes."""
        probes = [p for p in failed_probes(self.graph, self.known.values()) if (p.key, p.processor) not in self._taken]
        while probes and (size := self.round_size()):
            self.take(probes[:size], retry_failed=True)
            del probes[:size]
        if probes:
            self.log(f"{len(probes)} pieces that failed before are not tried again: the budget is over")

    def operators(self) -> None:
        """The whole operators, the most work first where the budget has not enough for all."""
        work = {Workload.of(o, self.graph).key: float(o.flops) for o in self.graph.operators}
        count = Counter(Workload.of(o, self.graph).key for o in self.graph.operators)
        probes = sorted(whole_probes(self.graph), key=lambda p: (-work[p.key] * count[p.key], p.key))
        for processor in ("cpu", "gpu"):
            wanted = [p for p in probes if p.processor == processor and (p.key, processor) not in self.known]
            if processor == "gpu":
                wanted = self._matter(wanted, count)
            most = self.purse.budget.measurements - self.purse.taken
            if processor == "cpu" and not any(on == "gpu" for _, on in self.known):
                most = most if most == math.inf else most // 2
            if wanted and most < 1 and not any(on == processor for _, on in self.known):
                raise UsageError(
                    "the budget is too small to plan with", "each processor needs a measurement", "give a larger one"
                )
            self.take(wanted[: int(min(most, len(wanted)))])

    def say_what_nothing_runs_on(self) -> None:
        """A processor on which all that was tried of this network failed: nothing is placed there."""
        keys = {Workload.of(o, self.graph).key for o in self.graph.operators}
        for processor in ("cpu", "gpu"):
            tried = [self.known[key, processor] for key in sorted(keys) if (key, processor) in self.known]
            if tried and not any(record.ok for record in tried):
                why = (tried[0].error.strip() or ErrorNo(tried[0].error_no).name).splitlines()[-1][:200]
                self.log(
                    f"nothing of this network runs on the {processor}: {len(tried)} operators failed, the first with: "
                    f"{why}; --retry-failed tries them again"
                )

    def _matter(self, probes: Sequence[Probe], count: Mapping[str, int]) -> list[Probe]:
        """Those whose operator takes more than a trifle of the network's time on the CPU, or may."""
        times = {key: self.known[key, "cpu"].median_ms for key in count if (key, "cpu") in self.known}
        total = sum(ms * count[key] for key, ms in times.items() if ms < math.inf)
        return [p for p in probes if times.get(p.key, math.inf) * count[p.key] >= WORTH_MEASURING * total]


def grid_placements(graph: OpGraph, axes: Axes, parts: int = 10) -> list[tuple[int, Placement]]:
    """``(operator id, split)``: each operator along each of its axes at ``1/parts``, ``2/parts``, ... of the extent.

    Cuts are rounded to the axis's granule, and those that coincide are one.
    """
    places = []
    for operator in graph.operators:
        for axis in axes.get(operator.id, {}).values():
            cuts = {round(axis.extent * k / parts / axis.granule) * axis.granule for k in range(1, parts)}
            places += [(operator.id, Placement("split", axis.name, at)) for at in sorted(cuts) if 0 < at < axis.extent]
    return places


def grid_probes(graph: OpGraph, axes: Axes, parts: int = 10) -> list[Probe]:
    """Everything: the whole operators, and both pieces of each of :func:`grid_placements`; equal workloads once."""
    return whole_probes(graph) + split_probes(graph, axes, grid_placements(graph, axes, parts))


def _numbers(plan: Plan, choices: Mapping[int, Sequence[Candidate]]) -> tuple[int, ...]:
    """The number of each operator's placement among its choices."""
    return tuple(
        next(index for index, option in enumerate(choices[o.operator]) if option.placement == o.placement)
        for o in plan.operators
    )


def predicted(operator: Operator, graph: OpGraph, axes: Axes, model: Predictor, split: Placement) -> Candidate:
    """A split of an operator with the times that the model says."""
    extent = axes[operator.id][split.axis].extent
    parts = split.parts(extent)
    cpu = model.predict([Workload.of(operator, graph, split.axis, *parts[0])], "cpu")
    gpu = model.predict([Workload.of(operator, graph, split.axis, *parts[1])], "gpu")
    return Candidate(split, float(cpu[0]), float(gpu[0]))


def _with(
    plan: Plan | None, graph: OpGraph, axes: Axes, model: Predictor, choices: dict[int, tuple[Candidate, ...]]
) -> dict[int, tuple[Candidate, ...]]:
    """``choices``, and the plan's own placements where other cuts have become the likely ones since."""
    for operator, planned in zip(graph.operators, plan.operators if plan else (), strict=False):
        if all(option.placement != planned.placement for option in choices[operator.id]):
            choices[operator.id] += (predicted(operator, graph, axes, model, planned.placement),)
    return choices
