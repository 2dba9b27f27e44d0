"""The search: the placements whose predicted end-to-end time is smallest.

Minimised exactly is the sum of the costs of operators and edges (:mod:`.costs`), as if both processors met after every
operator.  A plan's prediction is its simulated run (:mod:`.simulate`), in which they meet only where data crosses and branches
run side by side; from the plan of the smallest sum, the simulated run is then improved move by move (:mod:`.improve`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.plan.candidates import Axes, Candidate
from tvm_codl.plan.costs import Costs, build_costs
from tvm_codl.plan.eliminate import TABLE_LIMIT, evaluate, minimise
from tvm_codl.plan.energy import Energy
from tvm_codl.plan.improve import MOST_SIMULATIONS, improve
from tvm_codl.plan.plan import Plan, PlannedOperator
from tvm_codl.plan.reasons import reason


class SearchResult(msgspec.Struct, frozen=True):
    """All sums are of the minimised costs: ``total_ms`` the plan's, ``bound_ms`` a lower bound of any plan's and, where
    ``exact``, their minimum; a plan of a larger sum is chosen where its simulated run is shorter."""

    plan: Plan
    total_ms: float
    exact: bool
    bound_ms: float
    cpu_only_ms: float
    gpu_only_ms: float


def search(
    graph: OpGraph,
    candidates: Mapping[int, Sequence[Candidate]],
    sharing: TransferCost,
    axes: Axes,
    model: str = "",
    device: str = "",
    limit: int = TABLE_LIMIT,
    energy: Energy | None = None,
    simulations: int = MOST_SIMULATIONS,
    starts: Sequence[Sequence[int]] = (),
) -> SearchResult:
    """The best plan over ``candidates``, which start with ``cpu`` and ``gpu`` for each operator.

    With ``energy`` millijoules are minimised instead of milliseconds; the result's sums are in that unit.
    ``simulations``: how many plans are simulated beside that of the smallest sum and each processor alone; 0 for the
    smallest sum itself, unless a single processor's run is shorter.  The result is no worse than any choice of ``starts``.
    Raises :class:`UserError` for an operator that no processor runs.
    """
    for operator in graph.operators:
        if not any(np.isfinite(candidate.ms) for candidate in candidates[operator.id]):
            raise UserError(
                f"operator {operator.id} ({operator.name}) runs on neither processor", next=_errors_of(operator, device)
            )
    costs = build_costs(graph, candidates, sharing, axes)
    weighed = energy.weigh(costs) if energy else costs
    best = minimise(weighed.nodes, weighed.edges, limit)

    def predicted(choice: Sequence[int]) -> float:
        times = costs.simulate(choice)
        return energy.measure(times) if energy else times.total_ms

    whole = [(value,) * len(costs.nodes) for value in (0, 1)]
    sums = [evaluate(choice, weighed.nodes, weighed.edges) for choice in whole]
    runs = [choice for choice, total in zip(whole, sums, strict=True) if np.isfinite(total)]
    # Of equal plans prefer the single processor, which comes first.  Exact minima can only be equal here.
    tied = any(total <= best.total * (1 + 1e-12) for total in sums)
    choice = improve(weighed, [*runs, *([] if tied else [best.choice]), *map(tuple, starts)], predicted, simulations)
    total = evaluate(choice, weighed.nodes, weighed.edges)
    bound = min(best.bound, total)
    reasons = energy.reasons(weighed, choice) if energy else _reasons(costs, choice, axes)
    options = [candidates[operator.id] for operator in graph.operators]
    plan = assemble(costs, choice, options, _chains(costs, choice), reasons, model, device)
    if energy:
        plan = msgspec.structs.replace(plan, predicted_mj=round_ms(predicted(choice)))
    else:
        plan = msgspec.structs.replace(plan, searched_ms=round_ms(total), bound_ms=round_ms(bound))
    return SearchResult(plan, total, best.exact, bound, *sums)


def assemble(
    costs: Costs,
    choice: Sequence[int],
    wholes: Sequence[Sequence[Candidate]],
    chains: Sequence[int],
    reasons: Sequence[str],
    model: str = "",
    device: str = "",
) -> Plan:
    """The plan of a choice and the time of its simulated run; ``wholes`` start with each operator's ``cpu`` and ``gpu``."""
    chosen, transfers = costs.chosen(choice), costs.transfers(choice)
    lines = tuple(
        PlannedOperator(
            operator.id,
            operator.name,
            chosen[node].placement,
            cpu_ms=round_ms(wholes[node][0].cpu_ms),
            gpu_ms=round_ms(wholes[node][1].gpu_ms),
            planned_ms=round_ms(float(costs.work[node][choice[node]])),
            share_ms=round_ms(sum(transfers[node].values())),
            chain=chains[node],
            reason=reasons[node],
        )
        for node, operator in enumerate(costs.graph.operators)
    )
    return Plan(model, device, lines, predicted_ms=round_ms(costs.simulate(choice).total_ms))


def _errors_of(operator: Operator, device: str) -> str:
    """The commands that show why an operator does not run, and that try it again."""
    phone = f" --device {shlex.quote(device)}" if device else ""
    return (
        f"tvm-codl records export --format csv --mode alone --kind {shlex.quote(operator.kind)}{phone} shows why; "
        "tvm-codl measure MODEL --retry-failed tries again"
    )


def _reasons(costs: Costs, choice: Sequence[int], axes: Axes) -> list[str]:
    growth, transfers = costs.growth(choice), costs.transfers(choice)
    return [
        reason(
            chosen,
            costs.candidates[operator.id],
            axes.get(operator.id, {}),
            sum(transfers[node].values()),
            growth[node],
        )
        for node, (operator, chosen) in enumerate(zip(costs.graph.operators, costs.chosen(choice), strict=True))
    ]


def _chains(costs: Costs, choice: Sequence[int]) -> list[int]:
    """Numbers of the operator chains: runs of split operators between which nothing crosses; -1 outside of one."""
    split = [candidate.placement.on == "split" for candidate in costs.chosen(choice)]
    root = list(range(len(split)))

    def find_root(node: int) -> int:
        while root[node] != node:
            node = root[node]
        return node

    for (a, b), crossed in sorted(costs.crossings.items(), key=lambda item: item[0]):
        if split[a] and split[b] and not any(table[choice[a], choice[b]] for table in crossed.tables):
            low, high = sorted((find_root(a), find_root(b)))
            root[high] = low
    roots = [find_root(node) for node in range(len(split))]
    numbers: dict[int, int] = {}
    return [numbers.setdefault(r, len(numbers)) if roots.count(r) > 1 else -1 for r in roots]


def round_ms(ms: float) -> float:
    """To a tenth of a nanosecond; 0 for an infinite time, which JSON cannot hold."""
    return round(float(ms), 7) if np.isfinite(ms) else 0.0
