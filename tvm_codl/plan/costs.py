"""Costs: what every placement of a network's operators costs, and every pair of placements that an edge joins.

A node's cost is the operator's slower part, slowed down by the other part that runs beside it; an edge's is what the two
placements that it joins cost (:mod:`.crossing`, :class:`~tvm_codl.cost.transfers.TransferCost`), as if both processors met
after every operator.  :func:`replayed` is the time of a plan in which they meet only where data crosses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.cost.contention import Contention
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.dtype import bytes_of
from tvm_codl.graph.opgraph import Operator, OpGraph, Tensor
from tvm_codl.graph.split import Axis
from tvm_codl.plan.candidates import Axes, Candidate
from tvm_codl.plan.crossing import Crossing, crossing, held, needed, on_host, volumes
from tvm_codl.plan.eliminate import Table
from tvm_codl.plan.halo import Parts
from tvm_codl.plan.plan import Placement
from tvm_codl.plan.simulate import CPU, GPU, Part, Step, Times, replay

#: A part's time is known to within this share of it, and so is which of two parts ends last.
DOUBT = 0.1
#: Axes of an output whose parts need their own part of the weights only.
_CUT_WITH_WEIGHTS = frozenset(("channels", "columns"))


class Costs(msgspec.Struct, frozen=True):
    """The tables that are minimised: one node for each operator, in the graph's order; ``edges`` by node numbers.

    A node holds ``work``, the time of the operator, and ``host``, what its ends at the network's inputs and outputs cost.
    ``crossings`` and ``moved`` are the bytes behind them: those that cross an edge, and those that the memory moves for the
    CPU's and the GPU's part of an operator.
    """

    nodes: tuple[Table, ...]
    work: tuple[Table, ...]
    host: tuple[Table, ...]
    edges: dict[tuple[int, int], Table]
    crossings: dict[tuple[int, int], Crossing]
    moved: tuple[tuple[Table, Table], ...]


def replayed(
    graph: OpGraph,
    candidates: Mapping[int, Sequence[Candidate]],
    sharing: TransferCost,
    costs: Costs,
    choice: Sequence[int],
) -> Times:
    """The replay of a plan: for each operator, in the graph's order, the number of its candidate."""
    host = [float(table[value]) for table, value in zip(costs.host, choice, strict=True)]
    extra = (host, host.copy())
    after: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    # Milliseconds for each byte.
    relaid, copied = sharing.relayout_ms_per_mb / 1e6, sharing.copy_ms_per_mb / 1e6
    far = sharing.far_cpu_ms_per_mb / 1e6, sharing.far_gpu_ms_per_mb / 1e6
    for (a, b), found in costs.crossings.items():
        at = choice[a], choice[b]
        rewriting = found.relayout.item(at) * relaid
        for which, crossed in enumerate((found.to_cpu.item(at), found.to_gpu.item(at))):
            extra[which][b] += rewriting + crossed * (far[which] + copied)
            if crossed > 0:
                after[which].setdefault(b, []).append(a)
    steps = []
    for node, operator in enumerate(graph.operators):
        value = choice[node]
        placed, moved = candidates[operator.id][value], costs.moved[node]
        on, cpu, gpu = placed.placement.on, None, None
        if on != "gpu":
            cpu = Part(placed.cpu_ms, moved[CPU].item(value), extra[CPU][node], tuple(after[CPU].get(node, ())))
        if on != "cpu":
            gpu = Part(placed.gpu_ms, moved[GPU].item(value), extra[GPU][node], tuple(after[GPU].get(node, ())))
        steps.append(Step(cpu, gpu))
    return replay(steps, sharing)


def tables(graph: OpGraph, candidates: Mapping[int, Sequence[Candidate]], sharing: TransferCost, axes: Axes) -> Costs:
    """Node and edge costs in milliseconds for every choice, and every pair of choices, of placements."""
    maker = {id: node for node, operator in enumerate(graph.operators) for id in operator.outputs}
    placed = [[candidate.placement for candidate in candidates[operator.id]] for operator in graph.operators]
    legal = [dict(axes.get(operator.id, {})) for operator in graph.operators]
    has = {id: held(graph.tensors[id], placed[node], legal[node]) for id, node in maker.items()}
    ends = [np.zeros(len(choices)) for choices in placed]
    moved: list[tuple[Table, Table]] = []
    stored = sum(_weights(operator) for operator in graph.operators)
    crossings: dict[tuple[int, int], Crossing] = {}
    known: dict[tuple[object, ...], Crossing] = {}
    for node, operator in enumerate(graph.operators):
        wanted = dict(zip(operator.inputs, needed(operator, graph, placed[node], legal[node]), strict=True))
        read = [(graph.tensors[id], parts) for id, parts in wanted.items()]
        written = [(graph.tensors[id], has[id]) for id in operator.outputs]
        moved.append(_moved(operator, placed[node], legal[node], read + written, sharing.contention, stored))
        for id, parts in wanted.items():
            tensor = graph.tensors[id]
            if id not in maker:
                start = crossing(tensor, on_host(tensor), parts, written=False)
                # The inputs are there before the run starts, so the GPU does not wait for them.
                ends[node] += sharing.bytes_ms(np.zeros(1), start.to_gpu[0], start.relayout[0])
                continue
            edge = (maker[id], node)
            # Networks repeat a block: what is alike is found once.
            key = (tensor.shape, tensor.dtype, *(boxes.tobytes() for p in (has[id], parts) for boxes in (p.cpu, p.gpu)))
            found = known[key] = known.get(key) or crossing(tensor, has[id], parts)
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
    options: Sequence[Candidate], sharing: TransferCost, cpu_bytes: Table, gpu_bytes: Table
) -> tuple[Table, Table]:
    """When either part of each option ends, both started at once; 0 for no part."""
    gpu_has = np.array([option.placement.on != "cpu" for option in options])
    cpu_has = np.array([option.placement.on != "gpu" for option in options])
    cpu = np.array([option.cpu_ms for option in options])
    gpu = np.array([option.gpu_ms for option in options])
    cpu_end, gpu_end = sharing.contention.together(cpu, gpu, cpu_bytes, gpu_bytes)
    return cpu_end + sharing.feed_ms * (gpu_has & cpu_has), gpu_end + sharing.launch_ms * gpu_has


def _moved(
    operator: Operator,
    placed: Sequence[Placement],
    legal: dict[str, Axis],
    tensors: Sequence[tuple[Tensor, Parts]],
    contention: Contention,
    stored: float,
) -> tuple[Table, Table]:
    """Bytes that the memory moves for the CPU's and the GPU's part of an operator, for each placement.

    Weights come from memory once a run, unless a cache holds the ``stored`` bytes of the whole network's; a part of the
    axis along which they are cut reads its share of them, every other part all.  The tensors of a part that a cache does
    not hold do so too.
    """
    shares = np.ones((2, len(placed)))
    for number, placement in enumerate(placed):
        if placement.on == "split" and placement.axis in _CUT_WITH_WEIGHTS:
            extent = legal[placement.axis].extent
            shares[:, number] = [(hi - lo) / extent for lo, hi in placement.parts(extent)]
        elif placement.on != "split":
            shares[1 if placement.on == "cpu" else 0, number] = 0.0
    cpu, gpu = np.zeros(len(placed)), np.zeros(len(placed))
    for tensor, parts in tensors:
        of_cpu, of_gpu = volumes(tensor, parts)
        cpu, gpu = cpu + of_cpu, gpu + of_gpu
    weights = _weights(operator) * shares
    sides = contention.cpu, contention.gpu
    found = [
        side.beyond(own) + (part if stored > side.cache else 0.0)
        for side, own, part in zip(sides, (cpu, gpu), weights, strict=True)
    ]
    return found[CPU], found[GPU]


def _weights(operator: Operator) -> float:
    """Bytes."""
    return float(sum(bytes_of(const.shape, const.dtype) for const in operator.consts))
