"""Plan-guided measuring: measure a little, fit, plan, measure where the plan is close or unsure, and again.

First come the whole operators: those with the most work on both processors in turn, then all others on the CPU, and on the
GPU those that take long enough to matter, alone or together, and one of each kind.
Each round then fits the cost model to all records, plans, and measures the pieces with the largest expected gain
(:mod:`.acquisition`), until the plan is stable, nothing is left to gain, or the budget ends.  Records are stored as they
come and never measured twice, so an interrupted loop goes on where it was.  Equal records give equal results.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import msgspec

from tvm_codl.cost.model import CostModel
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import UsageError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.measure.acquisition import DRAWS, FEW_DRAWS, acquire
from tvm_codl.measure.budget import Budget, Purse
from tvm_codl.measure.context import Log
from tvm_codl.measure.probe import Probe, failed_probes, split_probes, whole_probes
from tvm_codl.plan.candidates import PROCESSORS, Axes, Candidate, Predictor, candidates, predict_splits
from tvm_codl.plan.costs import build_costs
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.search import search
from tvm_codl.records.record import ErrorNo, Processor, Record
from tvm_codl.records.rounds import Round
from tvm_codl.records.workload import Workload

Key = tuple[str, Processor]
Fit = Callable[[Iterable[Record]], CostModel]

#: An operator that takes less than this share of the network's CPU time, or work, is not measured on the GPU to begin with.
WORTH_MEASURING = 0.01
#: Unless all those together took on the CPU more than this share of what the others take on the GPU.
FEW = 0.1
#: A budget of time measures at least this many after the whole operators: fewer give no useful plan.
FEWEST_PIECES = 32
#: Measurements of one round: a third of what is left, within these.
SMALLEST_ROUND, LARGEST_ROUND = 16, 48
#: The plan is stable when it stays the same for so many rounds, or when only this share of its time is left to gain: runs
#: on the phone do not tell plans that are closer apart (halving.TIE).
STABLE_ROUNDS = 2
STABLE_GAIN = 0.01


class Meter(Protocol):
    """What measures: gives a record of each probe, failed ones too."""

    def measure(
        self, probes: Sequence[Probe], predicted_ms: Sequence[float | None] | None = None, *, retry_failed: bool = False
    ) -> Sequence[Record]: ...


class Guided(msgspec.Struct, frozen=True):
    """``measured`` counts new measurements; ``why`` says what ended the loop: ``stands``, ``budget`` or ``all measured``."""

    plan: Plan
    model: CostModel
    rounds: tuple[Round, ...]
    measured: int
    why: str


@dataclass
class GuidedMeasuring:
    """Measures a network within ``budget``; :meth:`run` returns the plan that the measurements lead to.

    ``records`` are those of this device and build, of whatever network, by workload and processor.  ``fit`` makes a cost
    model of records and knows the device that they are of; ``found`` gets the plan of each round.
    """

    graph: OpGraph
    axes: Axes
    meter: Meter
    sharing: TransferCost
    budget: Budget
    fit: Fit
    records: dict[Key, Record] = field(default_factory=dict)
    name: str = ""
    device: str = ""
    log: Log = lambda _: None
    found: Callable[[Plan], None] = lambda plan: None

    def __post_init__(self) -> None:
        self._purse = Purse(self.budget)
        self._chosen = 0
        self._taken: set[Key] = set()

    def run(self, retry_failed: bool = False) -> Guided:
        """With ``retry_failed`` measures what failed of this network again after the whole operators, as far as the budget
        goes.

        Keeps a number of measurements exactly.  A budget of time always measures the whole operators and
        ``FEWEST_PIECES`` pieces, and ends at the first round after it.  Raises :class:`UsageError` for a budget of fewer
        than two measurements where there are no records.
        """
        self._measure_operators()
        if retry_failed:
            self._retry_failures()
        self._report_dead_processors()
        rounds: list[Round] = []
        plan: Plan | None = None
        unmoved = 0
        while True:
            model = self.fit(self.records.values())
            choices = self._candidates(plan, model)
            costs = build_costs(self.graph, choices, self.sharing, self.axes)
            before = plan
            starts = [_numbers(plan, choices)] if plan else []
            plan = search(self.graph, choices, self.sharing, self.axes, self.name, self.device, starts=starts).plan
            size, why = self._round_size(), ""
            draws = DRAWS if size else FEW_DRAWS
            valued = acquire(self.graph, self.axes, choices, costs, plan, model, seed=len(rounds), draws=draws)
            moved, gained = 0, 0.0
            if before is not None:
                pairs = zip(before.operators, plan.operators, strict=True)
                moved = sum(a.placement != b.placement for a, b in pairs)
                then, now = (costs.simulate(numbers) for numbers in (*starts, _numbers(plan, choices)))
                gained = then.total_ms - now.total_ms
            rounds.append(Round(len(rounds), plan.predicted_ms, gained, moved, self._purse.taken, valued.gain_ms))
            self.log(str(rounds[-1]))
            self.found(plan)
            unmoved = unmoved + 1 if before is not None and not moved else 0
            if unmoved >= STABLE_ROUNDS or valued.gain_ms < STABLE_GAIN * plan.predicted_ms:
                why = "stands"
            elif size == 0:
                why = "budget"
            elif not valued.probes:
                why = "all measured"
            if why:
                return Guided(plan, model, tuple(rounds), self._purse.taken, why)
            best = valued.probes[:size]
            self._chosen += len(best)
            self._take([wanted.probe for wanted in best], [wanted.ms for wanted in best])

    def _take(
        self, probes: Sequence[Probe], predicted_ms: Sequence[float] | None = None, retry_failed: bool = False
    ) -> None:
        """Measures ``probes``, none of which is on record, but as a failure with ``retry_failed``."""
        if not probes:
            return
        before = time.monotonic()
        for record in self.meter.measure(probes, predicted_ms, retry_failed=retry_failed):
            self.records[record.workload, record.processor] = record
        self._purse.spend(len(probes), time.monotonic() - before)
        self._taken.update((probe.key, probe.processor) for probe in probes)

    def _round_size(self) -> int:
        left = self._purse.left
        if self.budget.measurements == math.inf:
            left = max(left, FEWEST_PIECES - self._chosen)
            if left <= LARGEST_ROUND:  # in one round, as each fits, plans and chooses for seconds
                return left
        return min(left, LARGEST_ROUND, max(SMALLEST_ROUND, left // 3))

    def _retry_failures(self) -> None:
        failed = failed_probes(self.graph, self.records.values())
        probes = [probe for probe in failed if (probe.key, probe.processor) not in self._taken]
        while probes and (size := self._round_size()):
            self._take(probes[:size], retry_failed=True)
            del probes[:size]
        if probes:
            self.log(f"{len(probes)} pieces that failed before are not tried again: the budget is over")

    def _measure_operators(self) -> None:
        """The whole operators, the most work first where the budget is too small for all."""
        work = {Workload.of(o, self.graph).key: float(o.flops) for o in self.graph.operators}
        probes = sorted(whole_probes(self.graph), key=lambda p: (-work[p.key] * self._calls[p.key], p.key))
        if self.budget.measurements == math.inf:
            least = WORTH_MEASURING * sum(work[key] * calls for key, calls in self._calls.items())
            self._take(self._in_turn([p for p in probes if work[p.key] * self._calls[p.key] > least]))
        for processor, choose in (("cpu", list), ("gpu", self._long_ones), ("gpu", self._short_ones)):
            wanted = choose([p for p in probes if p.processor == processor and (p.key, processor) not in self.records])
            most = self.budget.measurements - self._purse.taken
            if processor == "cpu" and not any(on == "gpu" for _, on in self.records):
                most = most if most == math.inf else most // 2
            if wanted and most < 1 and not any(on == processor for _, on in self.records):
                raise UsageError(
                    "the budget is too small to plan with", "each processor needs a measurement", "give a larger one"
                )
            self._take(wanted[: int(min(most, len(wanted)))])

    def _in_turn(self, probes: Sequence[Probe]) -> list[Probe]:
        """Those that are not on record, of both processors side by side: a phone that changes its speed meanwhile makes one
        as fast or slow as the other.  The one that comes first changes, so that two libraries get as many of each."""
        missing = [p for p in probes if (p.key, p.processor) not in self.records]
        place = {key: number for number, key in enumerate(dict.fromkeys(p.key for p in missing))}
        return sorted(missing, key=lambda p: (place[p.key], p.processor != PROCESSORS[place[p.key] % 2]))

    def _report_dead_processors(self) -> None:
        """Names a processor on which everything of this network failed: nothing is placed there."""
        keys = self._calls.keys()
        for processor in ("cpu", "gpu"):
            tried = [self.records[key, processor] for key in sorted(keys) if (key, processor) in self.records]
            if tried and not any(record.ok for record in tried):
                why = (tried[0].error.strip() or ErrorNo(tried[0].error_no).name).splitlines()[-1][:200]
                self.log(
                    f"nothing of this network runs on the {processor}: {len(tried)} operators failed, the first with: "
                    f"{why}; --retry-failed tries them again"
                )

    @cached_property
    def _workloads(self) -> list[Workload]:
        """Of the network's operators, in their order."""
        return [Workload.of(operator, self.graph) for operator in self.graph.operators]

    @cached_property
    def _calls(self) -> Counter[str]:
        """How many of the network's operators are one workload."""
        return Counter(workload.key for workload in self._workloads)

    @cached_property
    def _kinds(self) -> dict[str, tuple[str, str]]:
        """What an operator does and its type, by key."""
        return {workload.key: (workload.anchor, workload.dtype) for workload in self._workloads}

    def _long_ones(self, probes: Sequence[Probe]) -> list[Probe]:
        """Those whose operator takes a relevant share of the network's time on the CPU, or may; and the longest of each kind
        without one, since a kind that never ran there may be slower than anything the cost model has seen."""
        least = WORTH_MEASURING * self._total_ms("cpu", self._calls)
        cpu_ms = {p.key: self._ms(p.key, "cpu") * self._calls[p.key] for p in probes}
        seen = {self._kinds.get(key) for key, on in self.records if on == "gpu"}
        chosen = []
        for p in sorted(probes, key=lambda p: -cpu_ms[p.key]):
            if cpu_ms[p.key] >= least or self._kinds[p.key] not in seen:
                chosen.append(p)
                seen.add(self._kinds[p.key])
        return chosen

    def _short_ones(self, probes: Sequence[Probe]) -> list[Probe]:
        """``probes`` if they matter together: on a GPU that is much faster than the CPU, or that takes long to start."""
        others = self._calls.keys() - {p.key for p in probes}
        few = self._total_ms("cpu", [p.key for p in probes]) <= FEW * self._total_ms("gpu", others)
        return [] if few else list(probes)

    def _total_ms(self, processor: Processor, keys: Iterable[str]) -> float:
        """Of all calls of the operators ``keys`` that ran on it."""
        total = (self._ms(key, processor) * self._calls[key] for key in keys)
        return sum(ms for ms in total if ms < math.inf)

    def _ms(self, key: str, processor: Processor) -> float:
        """Infinite where it is not on record or does not run."""
        record = self.records.get((key, processor))
        return record.median_ms if record else math.inf

    def _candidates(self, plan: Plan | None, model: Predictor) -> dict[int, tuple[Candidate, ...]]:
        """The candidates, and the plan's own placements where they are none any more."""
        choices = candidates(self.graph, self.axes, model)
        missing = [
            (operator, planned.placement)
            for operator, planned in zip(self.graph.operators, plan.operators if plan else (), strict=False)
            if all(option.placement != planned.placement for option in choices[operator.id])
        ]
        for (operator, _), split in zip(missing, predict_splits(self.graph, self.axes, model, missing), strict=True):
            choices[operator.id] += (split,)
        return choices


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
