"""The search: the placements whose predicted end-to-end time is smallest.

What is minimised is the sum over operators of the slower part's time, slowed down by the other part that runs beside
it, plus the sum over edges of what the two placements that an edge joins cost (:mod:`.crossing`,
:class:`~tvm_codl.cost.sharing.SharingCost`), as if both processors met after every operator.  What is predicted for the
plan that is found is its replay (:mod:`.replay`), in which they meet only where data crosses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.cost.sharing import SharingCost
from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import Operator, OpGraph, Tensor
from tvm_codl.graph.split import Axis
from tvm_codl.plan.candidates import Axes, Candidate
from tvm_codl.plan.crossing import Crossing, Parts, crossing, held, needed, on_host, size_of, volumes
from tvm_codl.plan.eliminate import TABLE_LIMIT, Table, evaluate, minimise
from tvm_codl.plan.explain import reason
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.plan.replay import Part, Step, Times, replay

#: A part's time is known to within this share of it, and so is which of two parts ends last.
DOUBT = 0.1


class Found(msgspec.Struct, frozen=True):
    """``total_ms`` is the plan's time under the costs that are minimised, ``bound_ms`` is below the best plan's and equal
    to ``total_ms`` where ``exact``; so are ``cpu_only_ms`` and ``gpu_only_ms`` sums of these costs."""

    plan: Plan
    total_ms: float
    exact: bool
    bound_ms: float
    cpu_only_ms: float
    gpu_only_ms: float


class Costs(msgspec.Struct, frozen=True):
    """The tables that are minimised: one node for each operator, in the graph's order; ``edges`` by node numbers.

    A node holds ``work``, the time of the operator, and ``host``, what its ends at the network's inputs and outputs cost.
    ``crossings`` and ``moved`` are the bytes behind them: those that cross an edge, and those that the CPU's and the
    GPU's part of an operator read and write.
    """

    nodes: tuple[Table, ...]
    work: tuple[Table, ...]
    host: tuple[Table, ...]
    edges: dict[tuple[int, int], Table]
    crossings: dict[tuple[int, int], Crossing]
    moved: tuple[tuple[Table, Table], ...]


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
    predicted = replayed(graph, candidates, sharing, costs, choice).total_ms
    uniform = {}
    for value, on in enumerate(("cpu", "gpu")):
        everywhere = (value,) * len(costs.nodes)
        uniform[on] = evaluate(everywhere, costs.nodes, costs.edges)
        alone = replayed(graph, candidates, sharing, costs, everywhere).total_ms if np.isfinite(uniform[on]) else np.inf
        # <=: of plans that cost the same, the simple one.  Exact minima can only be equal here.
        if uniform[on] <= total * (1 + 1e-12) or alone <= predicted:
            choice, total, predicted = everywhere, uniform[on], alone
    plan = Plan(model, device, _operators(graph, candidates, axes, costs, choice), predicted_ms=_round(predicted))
    return Found(plan, total, best.exact, min(best.bound, total), uniform["cpu"], uniform["gpu"])


def replayed(
    graph: OpGraph,
    candidates: Mapping[int, Sequence[Candidate]],
    sharing: SharingCost,
    costs: Costs,
    choice: Sequence[int],
) -> Times:
    """The replay of a plan: for each operator, in the graph's order, the number of its candidate."""
    extra = np.zeros((2, len(choice)))
    extra += [float(table[value]) for table, value in zip(costs.host, choice, strict=True)]
    after: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    for (a, b), found in costs.crossings.items():
        to_cpu, to_gpu, relayout = (float(table[choice[a], choice[b]]) for table in found.tables)
        rewriting = relayout * sharing.relayout_ms_per_mb / 1e6
        for which, (crossed, far) in enumerate(
            ((to_cpu, sharing.far_cpu_ms_per_mb), (to_gpu, sharing.far_gpu_ms_per_mb))
        ):
            extra[which, b] += rewriting + crossed * (far + sharing.copy_ms_per_mb) / 1e6
            if crossed > 0:
                after[which].setdefault(b, []).append(a)
    steps = []
    for node, operator in enumerate(graph.operators):
        placed = candidates[operator.id][choice[node]]
        has = (placed.placement.on != "gpu", placed.placement.on != "cpu")
        parts = [
            Part(
                ms, float(costs.moved[node][which][choice[node]]), extra[which, node], tuple(after[which].get(node, ()))
            )
            if has[which]
            else None
            for which, ms in enumerate((placed.cpu_ms, placed.gpu_ms))
        ]
        steps.append(Step(*parts))
    return replay(steps, sharing)


def tables(graph: OpGraph, candidates: Mapping[int, Sequence[Candidate]], sharing: SharingCost, axes: Axes) -> Costs:
    """Node and edge costs in milliseconds for every choice, and every pair of choices, of placements."""
    maker = {id: node for node, operator in enumerate(graph.operators) for id in operator.outputs}
    placed = [[candidate.placement for candidate in candidates[operator.id]] for operator in graph.operators]
    legal = [dict(axes.get(operator.id, {})) for operator in graph.operators]
    has = {id: held(graph.tensors[id], placed[node], legal[node]) for id, node in maker.items()}
    ends = [np.zeros(len(choices)) for choices in placed]
    moved: list[tuple[Table, Table]] = []
    crossings: dict[tuple[int, int], Crossing] = {}
    for node, operator in enumerate(graph.operators):
        wanted = dict(zip(operator.inputs, needed(operator, graph, placed[node], legal[node]), strict=True))
        read = [(graph.tensors[id], parts) for id, parts in wanted.items()]
        written = [(graph.tensors[id], has[id]) for id in operator.outputs]
        moved.append(_moved(operator, placed[node], legal[node], read + written))
        for id, parts in wanted.items():
            tensor = graph.tensors[id]
            if id not in maker:
                start = crossing(tensor, on_host(tensor), parts, written=False)
                # The inputs are there before the run starts, so the GPU does not wait for them.
                ends[node] += sharing.bytes_ms(np.zeros(1), start.to_gpu[0], start.relayout[0])
                continue
            edge = (maker[id], node)
            found = crossing(tensor, has[id], parts)
            crossings[edge] = crossings[edge] + found if edge in crossings else found
    for id in graph.outputs:
        if id in maker:
            end = crossing(graph.tensors[id], has[id], on_host(graph.tensors[id]))
            ends[maker[id]] += sharing.edge_ms(end.to_cpu[:, 0], end.to_gpu[:, 0], end.relayout[:, 0])
    work, later = [], []
    for operator, (by_cpu, by_gpu) in zip(graph.operators, moved, strict=True):
        cpu_end, gpu_end = _ends(candidates[operator.id], sharing, by_cpu, by_gpu)
        work.append(np.maximum(cpu_end, gpu_end))
        with np.errstate(invalid="ignore"):  # of what runs on neither processor, nobody is last
            later.append(np.nan_to_num(cpu_end - gpu_end, nan=0.0))
    edges = {}
    for (a, b), c in crossings.items():
        edges[a, b] = sharing.bytes_ms(c.to_cpu, c.to_gpu, c.relayout)
        if b == a + 1:
            # What was made before the last operator is long there: nobody waits for it.
            doubt = DOUBT * work[a][:, None]
            edges[a, b] = edges[a, b] + sharing.wait_ms(c.to_cpu, c.to_gpu, later[a][:, None], doubt)
    nodes = tuple(w + end for w, end in zip(work, ends, strict=True))
    return Costs(nodes, tuple(work), tuple(ends), edges, crossings, tuple(moved))


def _ends(
    options: Sequence[Candidate], sharing: SharingCost, cpu_bytes: Table, gpu_bytes: Table
) -> tuple[Table, Table]:
    """When either part of each option ends, both started at once; 0 for no part."""
    gpu_has = np.array([option.placement.on != "cpu" for option in options])
    cpu_has = np.array([option.placement.on != "gpu" for option in options])
    cpu = np.array([option.cpu_ms for option in options])
    gpu = np.array([option.gpu_ms for option in options])
    cpu_end, gpu_end = sharing.contention.together(cpu, gpu, cpu_bytes, gpu_bytes)
    return cpu_end + sharing.feed_ms * (gpu_has & cpu_has), gpu_end + sharing.launch_ms * gpu_has


def _moved(
    operator: Operator, placed: Sequence[Placement], legal: dict[str, Axis], tensors: Sequence[tuple[Tensor, Parts]]
) -> tuple[Table, Table]:
    """Bytes that the CPU's and the GPU's part of an operator read and write, for each placement.

    Weights: a part of the channels reads its share of them, every other part reads them all.
    """
    weights = float(sum(size_of(const.dtype) * np.prod(const.shape, dtype=float) for const in operator.consts))
    shares = np.ones((2, len(placed)))
    for number, placement in enumerate(placed):
        if placement.on == "split" and placement.axis == "channels":
            share = placement.at / legal[placement.axis].extent
            shares[:, number] = share, 1 - share
        elif placement.on != "split":
            shares[1 if placement.on == "cpu" else 0, number] = 0.0
    cpu, gpu = weights * shares
    for tensor, parts in tensors:
        of_cpu, of_gpu = volumes(tensor, parts)
        cpu, gpu = cpu + of_cpu, gpu + of_gpu
    return cpu, gpu


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
