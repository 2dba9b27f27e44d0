"""The search: the placements whose predicted end-to-end time is smallest.

What is minimised exactly is the sum of the costs of operators and edges (:mod:`.costs`), as if both processors met after
every operator.  What is predicted for a plan is its replay (:mod:`.replay`), in which they meet only where data crosses and
branches run side by side; from the plan of the smallest sum, the replay is then improved move by move (:mod:`.improve`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.plan.candidates import Axes, Candidate
from tvm_codl.plan.costs import DOUBT, Costs, replayed, tables
from tvm_codl.plan.eliminate import TABLE_LIMIT, evaluate, minimise
from tvm_codl.plan.improve import MOST_REPLAYS, improved, second
from tvm_codl.plan.plan import Plan, PlannedOperator
from tvm_codl.plan.reasons import reason

if TYPE_CHECKING:
    from tvm_codl.plan.energy import Objective

__all__ = ["DOUBT", "Costs", "Found", "find", "replayed", "search", "tables"]


class Found(msgspec.Struct, frozen=True):
    """``total_ms`` is the plan's time under the costs that are minimised; ``bound_ms`` is below every plan's and, where
    ``exact``, the least of them.  A plan of a larger sum is chosen where its replay is shorter.  So are ``cpu_only_ms`` and
    ``gpu_only_ms`` sums of these costs."""

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
) -> Plan:
    """The plan of :func:`find`."""
    return find(graph, candidates, sharing, axes, model, device).plan


def find(
    graph: OpGraph,
    candidates: Mapping[int, Sequence[Candidate]],
    sharing: TransferCost,
    axes: Axes,
    model: str = "",
    device: str = "",
    limit: int = TABLE_LIMIT,
    objective: Objective | None = None,
    replays: int = MOST_REPLAYS,
    known: Sequence[Sequence[int]] = (),
) -> Found:
    """The best plan over ``candidates``, which start with ``cpu`` and ``gpu`` for each operator.

    With an ``objective`` its costs are minimised instead of the time; the sums of what is returned are in its unit.
    ``replays``: how many plans beside that of the smallest sum, and each processor alone, are replayed in search of a
    shorter one; 0 for the smallest sum itself, unless a single processor's replay is shorter.  ``known`` are other plans, as
    numbers of candidates for each operator: the result's replay is no longer than any of theirs.
    Raises :class:`UserError` for an operator that no processor runs.
    """
    for operator in graph.operators:
        if not any(np.isfinite(candidate.ms) for candidate in candidates[operator.id]):
            raise UserError(
                f"operator {operator.id} ({operator.name}) runs on neither processor",
                next=_errors_of(operator, device),
            )
    costs = tables(graph, candidates, sharing, axes)
    weighed = objective.weighed(graph, candidates, sharing, costs) if objective else costs
    best = minimise(weighed.nodes, weighed.edges, limit)

    def predicted(choice: Sequence[int]) -> float:
        times = replayed(graph, candidates, sharing, costs, choice)
        return objective.of(times) if objective else times.total_ms

    everywhere = {on: (value,) * len(costs.nodes) for value, on in enumerate(("cpu", "gpu"))}
    uniform = {on: evaluate(choice, weighed.nodes, weighed.edges) for on, choice in everywhere.items()}
    alone = [choice for on, choice in everywhere.items() if np.isfinite(uniform[on])]
    # Of plans that cost the same the simple one, which comes first.  Exact minima can only be equal here.
    alike = [choice for on, choice in everywhere.items() if uniform[on] <= best.total * (1 + 1e-12)]
    starts = [*alone, *([] if alike else [best.choice]), *map(tuple, known)]
    choice = improved(graph, weighed, starts, predicted, replays)
    total = evaluate(choice, weighed.nodes, weighed.edges)
    bound = min(best.bound, total)
    plan = Plan(
        model,
        device,
        _operators(graph, candidates, axes, costs, choice),
        predicted_ms=_round(replayed(graph, candidates, sharing, costs, choice).total_ms),
    )
    if objective:
        plan = msgspec.structs.replace(plan, predicted_mj=_round(predicted(choice)))
    else:
        plan = msgspec.structs.replace(plan, searched_ms=_round(total), bound_ms=_round(bound))
    return Found(plan, total, best.exact, bound, uniform["cpu"], uniform["gpu"])


def _errors_of(operator: Operator, device: str) -> str:
    """The command that shows why an operator does not run, and the one that tries it again."""
    phone = f" --device {shlex.quote(device)}" if device else ""
    return (
        f"tvm-codl records export --format csv --mode alone --kind {shlex.quote(operator.kind)}{phone} shows why; "
        "tvm-codl measure MODEL --retry-failed tries again"
    )


def _operators(
    graph: OpGraph,
    candidates: Mapping[int, Sequence[Candidate]],
    axes: Axes,
    costs: Costs,
    choice: Sequence[int],
) -> tuple[PlannedOperator, ...]:
    share = [float(table[value]) for table, value in zip(costs.host, choice, strict=True)]
    for (a, b), table in costs.edges.items():
        share[b] += float(table[choice[a], choice[b]])
    chains = _chains(graph.operators, candidates, costs, choice)
    planned = []
    for node, operator in enumerate(graph.operators):
        options = candidates[operator.id]
        chosen = options[choice[node]]
        planned.append(
            PlannedOperator(
                operator.id,
                operator.name,
                chosen.placement,
                cpu_ms=_round(options[0].cpu_ms),
                gpu_ms=_round(options[1].gpu_ms),
                planned_ms=_round(float(costs.work[node][choice[node]])),
                share_ms=_round(share[node]),
                chain=chains[node],
                reason=reason(
                    chosen, options, axes.get(operator.id, {}), share[node], second(node, choice, costs).tolist()
                ),
            )
        )
    return tuple(planned)


def _chains(
    operators: Sequence[Operator], candidates: Mapping[int, Sequence[Candidate]], costs: Costs, choice: Sequence[int]
) -> list[int]:
    """Numbers of the operator chains: runs of split operators between which nothing crosses; -1 outside of one."""
    root = list(range(len(operators)))

    def find_root(node: int) -> int:
        while root[node] != node:
            node = root[node]
        return node

    for (a, b), found in sorted(costs.crossings.items(), key=lambda item: item[0]):
        both = all(candidates[operators[n].id][choice[n]].placement.on == "split" for n in (a, b))
        if both and not any(table[choice[a], choice[b]] for table in found.tables):
            low, high = sorted((find_root(a), find_root(b)))
            root[high] = low
    roots = [find_root(node) for node in range(len(operators))]
    numbers: dict[int, int] = {}
    return [numbers.setdefault(r, len(numbers)) if roots.count(r) > 1 else -1 for r in roots]


def _round(ms: float) -> float:
    """Microseconds with one digit; what is infinite is left out of a plan, whose JSON has no infinity."""
    return round(float(ms), 7) if np.isfinite(ms) else 0.0
