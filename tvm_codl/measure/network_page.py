"""A network and its plan as a :class:`~tvm_codl.report.page.Page`, by the records of the plan's phone."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import Tensor
from tvm_codl.graph.split import Axis
from tvm_codl.measure.run_rows import run_rows
from tvm_codl.plan.baselines.ideal import ideal_ms
from tvm_codl.plan.explain.explanation import Estimator, Explained, explain, how_chosen
from tvm_codl.plan.explain.prices import Prices
from tvm_codl.plan.measured import graph_digest
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.reasons import placement_words
from tvm_codl.plan.simulate import Times
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.rounds import Round
from tvm_codl.report.page import Bar, Choice, OperatorRow, Page, Ran, Searched, Total
from tvm_codl.report.statistics import Statistics
from tvm_codl.report.timeline import read_events

if TYPE_CHECKING:
    from tvm_codl.measure.bench import BenchReport

#: Other placements of an operator whose networks are simulated, at most and at least, and about how many in all: one takes
#: 4 ms for 300 operators.
MOST, LEAST, IN_ALL = 8, 3, 1000
#: Runs of plans that a page shows at most.
RUNS = 12
_PROCESSORS: tuple[Literal["cpu", "gpu"], ...] = ("cpu", "gpu")


class Checked(msgspec.Struct, frozen=True):
    """Of what ``check --plan --json`` prints of an operator: its errors, none where its result has another shape."""

    operator: int
    placement: Placement
    max_rel_err: float | None
    own: float | None


class CheckedPlan(msgspec.Struct, frozen=True):
    operators: tuple[Checked, ...]


def network_page(
    source: str, plan: Plan, plan_path: str, problem: Problem, model: Estimator, bench: BenchReport | None = None,
    runs: Sequence[PlanRecord] = (), rounds: Sequence[Round] = (), checked: Sequence[Checked] = (),
) -> Page:  # fmt: skip
    """Of a legal plan.  ``source`` and ``plan_path`` are what the command that asks what if is given; ``bench`` is the
    measured comparison, where there is one; ``runs`` of plans on the phone, those of other networks are left out; ``rounds``
    of the search; ``checked``: operators' errors.  Raises :class:`UserError` where these are of another plan."""
    errors = _errors(checked, plan)
    events = read_events(bench.timeline) if bench is not None else ()
    prices = Prices.of(problem, [plan])
    choice = prices.choice(plan)
    times = prices.times(choice)
    explained = explain(plan, prices, model, others=False)
    correction = problem.factor(plan.placements)
    predicted_ms = times.total_ms * correction
    alone = {on: each.predicted_ms for on, each in problem.single_processor_plans().items()}
    totals = _predicted(predicted_ms, alone) if bench is None else _measured(bench, predicted_ms, alone)
    planned = f" --plan {shlex.quote(plan_path)}" if plan_path else ""
    facts = [("phone", plan.device or problem.device), ("operators", str(len(plan.operators)))]
    for on in ("cpu", "gpu", "split"):
        facts.append((f"on {on}" if on != "split" else "split", str(sum(p.on == on for p in plan.placements))))
    if bench is not None:
        facts += [
            ("overlap", f"{bench.overlap:.0%}"), ("efficiency", f"{bench.efficiency:.2f}"),
            ("copied in a run", f"{bench.copied_bytes} bytes ({bench.sharing})"),
            ("error against the reference", f"{bench.max_rel_err:.1e} relative"),
        ]  # fmt: skip
    return Page(
        title=plan.model,
        verdict=_predicted_verdict(predicted_ms, alone) if bench is None else _measured_verdict(bench),
        facts=tuple(facts),
        totals=totals,
        operators=tuple(_rows(explained.operators, prices, choice, errors)),
        predicted_ms=predicted_ms,
        correction=correction,
        bars=tuple(_bars(plan, times)),
        span_ms=times.total_ms,
        waited_ms=times.waited_ms,
        what_if=f"tvm-codl plan {shlex.quote(source)}{planned}",
        chosen=_chosen(plan, plan_path),
        events=events,
        event_rows=tuple(run_rows(events, plan, problem.graph)),
        rounds=tuple(Searched(r.measured, r.predicted_ms, r.moved, r.gain_ms) for r in rounds),
        runs=tuple(_ran(runs, plan, problem)),
    )


def _ran(runs: Sequence[PlanRecord], plan: Plan, problem: Problem) -> list[Ran]:
    """The newest of this network, the fastest of a day first."""
    digest = graph_digest(problem.graph)
    found = []
    for run in sorted((run for run in runs if run.graph == digest), key=lambda run: -run.when)[:RUNS]:
        places = msgspec.json.decode(run.placements, type=tuple[Placement, ...])
        on = {placement.on for placement in places}
        split = sum(placement.on == "split" for placement in places)
        words = f"the {on.pop().upper()} alone" if len(on) == 1 and not split else f"{split} of {len(places)} split"
        day = time.strftime("%Y-%m-%d", time.localtime(run.when))
        found.append(Ran(day, words, run.predicted_ms, run.median_ms, places == plan.placements))
    return sorted(sorted(found, key=lambda each: each.ms), key=lambda each: each.day, reverse=True)


def _chosen(plan: Plan, plan_path: str) -> str:
    if not plan_path:
        return "by the search, which does not simulate every change"
    return how_chosen(plan.measured_ms, plan.predicted_mj)


def _errors(checked: Sequence[Checked], plan: Plan) -> dict[int, tuple[float | None, float | None]]:
    places = {line.operator: line.placement for line in plan.operators}
    for line in checked:
        if places.get(line.operator) != line.placement:
            raise UserError(
                "the errors are of another plan",
                f"operator {line.operator} is there on {placement_words(line.placement)}",
                "tvm-codl check MODEL --plan PLAN --json > FILE",
            )
    return {line.operator: (line.max_rel_err, line.own) for line in checked}


def _rows(
    lines: tuple[Explained, ...],
    prices: Prices,
    choice: tuple[int, ...],
    errors: Mapping[int, tuple[float | None, float | None]],
) -> list[OperatorRow]:
    graph = prices.problem.graph
    made = {tensor: row for row, operator in enumerate(graph.operators) for tensor in operator.outputs}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    growth = prices.costs.growth(choice)
    count = max(LEAST, min(MOST, IN_ALL // len(lines)))
    rows = []
    for node, (operator, line) in enumerate(zip(graph.operators, lines, strict=True)):
        transfer_ms = sum(shared.ms for shared in line.shared)
        best_ms = _best_ms(line)
        rows.append(
            OperatorRow(
                number=operator.id,
                name=operator.name,
                kind=operator.kind,
                shape=_shape(tensors[operator.outputs[0]]),
                flops=operator.flops,
                sources=tuple(made[tensor] for tensor in operator.inputs if tensor in made),
                on=line.placement.on,
                placement=placement_words(line.placement),
                cpu_share=_cpu_share(line.placement, prices.problem.axes[operator.id]),
                cpu_ms=line.cpu_ms,
                gpu_ms=line.gpu_ms,
                here_ms=line.here_ms,
                transfer_ms=transfer_ms,
                ideal_ms=best_ms,
                lost_ms=line.here_ms + transfer_ms - best_ms,
                chain=line.chain,
                known=line.known,
                reason=line.reason,
                variant=line.variant,
                choices=tuple(_choices(prices, choice, node, growth[node], count)),
                errors=errors.get(operator.id),
            )
        )
    return rows


def _choices(prices: Prices, choice: tuple[int, ...], node: int, growth: np.ndarray, count: int) -> list[Choice]:
    """Whole on each processor, and the cuts with the least growth of the search's costs, by the network's predicted time."""
    options = prices.choices[prices.problem.graph.operators[node].id]
    likely = [int(i) for i in np.argsort(growth, kind="stable") if np.isfinite(growth[i])]
    wanted = dict.fromkeys([*(i for i in (0, 1) if i in likely), *likely])
    found = []
    for index in [i for i in wanted if i != choice[node]][:count]:
        moved = [*choice]
        moved[node] = index
        found.append(Choice(placement_words(options[index].placement), prices.predicted_ms(moved)))
    return sorted(found, key=lambda each: each.total_ms)


def _best_ms(line: Explained) -> float:
    """Ideal, 0 where only pieces of it run."""
    cpu_ms, gpu_ms = (math.inf if ms is None else ms for ms in (line.cpu_ms, line.gpu_ms))
    return ideal_ms([cpu_ms], [gpu_ms]) if min(cpu_ms, gpu_ms) < math.inf else 0.0


def _shape(made: Tensor) -> str:
    return f"{' × '.join(map(str, made.shape)) or 'one number'} {made.dtype}"


def _cpu_share(placement: Placement, axes: Mapping[str, Axis]) -> float:
    if placement.on == "split":
        return placement.at / axes[placement.axis].extent
    return float(placement.on == "cpu")


def _bars(plan: Plan, times: Times) -> list[Bar]:
    return [
        Bar(on, row, start, end)
        for row, placement in enumerate(plan.placements)
        for on, start, end in zip(_PROCESSORS, times.starts[row], times.ends[row], strict=True)
        if placement.on in (on, "split") and end > start
    ]


def _predicted(both_ms: float, alone: Mapping[str, float]) -> tuple[Total, ...]:
    ways = [Total("this plan", both_ms, predicted_ms=both_ms)]
    return tuple(ways + [Total(f"{on.upper()} only", ms, predicted_ms=ms) for on, ms in alone.items()])


def _measured(bench: BenchReport, both_ms: float, alone: Mapping[str, float]) -> tuple[Total, ...]:
    ways: list[tuple[str, Statistics, float | None]] = [("this plan", bench.coexec_ms, both_ms)]
    for on, times in (("cpu", bench.cpu_ms), ("gpu", bench.gpu_ms)):
        if times is not None:
            ways.append((f"{on.upper()} only", times, alone.get(on)))
    totals = [_total(*way) for way in ways]
    return tuple(totals + [_total(name, times, None) for name, times in bench.peers_ms.items()])


def _total(name: str, times: Statistics, predicted_ms: float | None) -> Total:
    return Total(name, times.median, (times.p10, times.p90), predicted_ms)


def _predicted_verdict(both_ms: float, alone: Mapping[str, float]) -> str:
    words = f"Predicted: {both_ms:.2f} ms by this plan"
    if alone:
        best = min(alone, key=lambda on: alone[on])
        words += f", {alone[best] / both_ms:.2f} times as fast as the {best.upper()} alone ({alone[best]:.2f} ms)"
    return f"{words}. Not measured: tvm-codl bench does that."


def _measured_verdict(bench: BenchReport) -> str:
    times = bench.coexec_ms
    words = f"{times.median:.2f} ms by this plan (p10 to p90: {times.p10:.2f} to {times.p90:.2f})"
    if bench.speedup is not None and bench.best_single is not None:
        words += f", {bench.speedup:.2f} times as fast as the {bench.best_single.upper()} alone"
    words += f"; answers are off by {bench.max_rel_err:.1e} at most."
    return f"Disturbed, other work had the cores: {words}" if bench.disturbed else words
