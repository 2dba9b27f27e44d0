"""The search: the placements whose predicted end-to-end time is smallest.

The time of a plan is the sum over operators of the slower part's time, plus the sum over edges of what the two
placements that an edge joins cost (:mod:`.crossing`, :class:`~tvm_codl.cost.sharing.SharingCost`).  That bounds
the real time from above: parts that nothing joins may run ahead of each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.cost.sharing import SharingCost
from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.plan.candidates import Axes, Candidate
from tvm_codl.plan.crossing import Crossing, crossing, held, needed, on_host
from tvm_codl.plan.eliminate import TABLE_LIMIT, Table, evaluate, minimise
from tvm_codl.plan.explain import reason
from tvm_codl.plan.plan import Plan, PlannedOperator


class Found(msgspec.Struct, frozen=True):
    """``bound_ms`` is below the best plan's time under these costs, and equal to it where ``exact``."""

    plan: Plan
    exact: bool
    bound_ms: float
    cpu_only_ms: float
    gpu_only_ms: float


class Costs(msgspec.Struct, frozen=True):
    """The tables that are minimised: one node for each operator, in the graph's order; ``edges`` by node numbers.

    A node holds the time of the operator and ``host``, what its ends at the network's inputs and outputs cost.
    """

    nodes: tuple[Table, ...]
    host: tuple[Table, ...]
    edges: dict[tuple[int, int], Table]


def search(
    graph: OpGraph,
    candidates: Mapping[int, Sequence[Candidate]],
    sharing: SharingCost,
    axes: Axes,
    model: str = "",
    device: str = "",
) -> Plan:
    """The plan of :func:`find`."""
    return find(graph, candidates, sharing, axes, model, device).plan


def find(
    graph: OpGraph,
    candidates: Mapping[int, Sequence[Candidate]],
    sharing: SharingCost,
    axes: Axes,
    model: str = "",
    device: str = "",
    limit: int = TABLE_LIMIT,
) -> Found:
    """The best plan over ``candidates``, which start with ``cpu`` and ``gpu`` for each operator.

    Raises :class:`UserError` for an operator that no processor runs.
    """
    for operator in graph.operators:
        if not any(np.isfinite(candidate.ms) for candidate in candidates[operator.id]):
            raise UserError(
                f"operator {operator.id} ({operator.name}) runs on neither processor",
                next="tvm-codl doctor, and the device's records of this operator, say why",
            )
    costs = tables(graph, candidates, sharing, axes)
    best = minimise(costs.nodes, costs.edges, limit)
    choice, total = best.choice, best.total
    uniform = {}
    for value, on in enumerate(("cpu", "gpu")):
        everywhere = (value,) * len(costs.nodes)
        uniform[on] = evaluate(everywhere, costs.nodes, costs.edges)
        # <=: of plans that cost the same, the simple one.  Exact minima can only be equal here.
        if uniform[on] <= total * (1 + 1e-12):
            choice, total = everywhere, uniform[on]
    plan = Plan(model, device, _operators(graph, candidates, axes, costs, choice), predicted_ms=_round(total))
    return Found(plan, best.exact, min(best.bound, total), uniform["cpu"], uniform["gpu"])


def tables(graph: OpGraph, candidates: Mapping[int, Sequence[Candidate]], sharing: SharingCost, axes: Axes) -> Costs:
    """Node and edge costs in milliseconds for every choice, and every pair of choices, of placements."""
    maker = {id: node for node, operator in enumerate(graph.operators) for id in operator.outputs}
    placed = [[candidate.placement for candidate in candidates[operator.id]] for operator in graph.operators]
    legal = [dict(axes.get(operator.id, {})) for operator in graph.operators]
    has = {id: held(graph.tensors[id], placed[node], legal[node]) for id, node in maker.items()}
    ends = [np.zeros(len(choices)) for choices in placed]
    crossings: dict[tuple[int, int], Crossing] = {}
    for node, operator in enumerate(graph.operators):
        wanted = dict(zip(operator.inputs, needed(operator, graph, placed[node], legal[node]), strict=True))
        for id, parts in wanted.items():
            tensor = graph.tensors[id]
            if id not in maker:
                start = crossing(tensor, on_host(tensor), parts, written=False)
                # The inputs are there before the run starts, so the GPU does not wait for them.
                ends[node] += sharing.edge_ms(np.zeros(1), np.zeros(1), start.relayout[0])
                ends[node] += start.to_gpu[0] * sharing.copy_ms_per_mb / 1e6
                continue
            edge = (maker[id], node)
            found = crossing(tensor, has[id], parts)
            crossings[edge] = crossings[edge] + found if edge in crossings else found
    for id in graph.outputs:
        if id in maker:
            end = crossing(graph.tensors[id], has[id], on_host(graph.tensors[id]))
            ends[maker[id]] += sharing.edge_ms(end.to_cpu[:, 0], end.to_gpu[:, 0], end.relayout[:, 0])
    edges = {edge: sharing.edge_ms(c.to_cpu, c.to_gpu, c.relayout) for edge, c in crossings.items()}
    work = [np.array([c.ms for c in candidates[operator.id]]) for operator in graph.operators]
    return Costs(tuple(w + end for w, end in zip(work, ends, strict=True)), tuple(ends), edges)


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
                planned_ms=_round(chosen.ms),
                share_ms=_round(share[node]),
                chain=chains[node],
                reason=reason(
                    chosen, options, axes.get(operator.id, {}), share[node], _second(node, choice, costs).tolist()
                ),
            )
        )
    return tuple(planned)


def _second(node: int, choice: Sequence[int], costs: Costs) -> Table:
    """What the plan's time would become with another placement of this operator, all others as they are."""
    table = costs.nodes[node].copy()
    for (a, b), edge in costs.edges.items():
        if a == node:
            table += edge[:, choice[b]]
        elif b == node:
            table += edge[choice[a], :]
    excess: Table = table - table[choice[node]]
    return excess


def _chains(
    operators: Sequence[Operator], candidates: Mapping[int, Sequence[Candidate]], costs: Costs, choice: Sequence[int]
) -> list[int]:
    """Numbers of the operator chains: runs of split operators whose edges cost nothing; -1 outside of one."""
    root = list(range(len(operators)))

    def find_root(node: int) -> int:
        while root[node] != node:
            node = root[node]
        return node

    for (a, b), table in sorted(costs.edges.items(), key=lambda item: item[0]):
        both = all(candidates[operators[n].id][choice[n]].placement.on == "split" for n in (a, b))
        if both and table[choice[a], choice[b]] == 0.0:
            low, high = sorted((find_root(a), find_root(b)))
            root[high] = low
    roots = [find_root(node) for node in range(len(operators))]
    numbers: dict[int, int] = {}
    return [numbers.setdefault(r, len(numbers)) if roots.count(r) > 1 else -1 for r in roots]


def _round(ms: float) -> float:
    """Microseconds with one digit; what is infinite is left out of a plan, whose JSON has no infinity."""
    return round(float(ms), 7) if np.isfinite(ms) else 0.0
