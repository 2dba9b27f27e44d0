"""Costs: what every placement of a network's operators costs, and every pair of placements that an edge joins.

A node's cost is the operator's slower part, with contention; an edge's is the transfer between the two placements that it
joins (:mod:`.crossing`, :class:`~tvm_codl.cost.transfers.TransferCost`), as if both processors met after every operator.
:meth:`Costs.simulate` is the time of a plan in which they meet only where data crosses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.cost.contention import Contention
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.dtype import bytes_of
from tvm_codl.graph.opgraph import Operator, OpGraph, Tensor
from tvm_codl.graph.split import Axis, structure
from tvm_codl.plan.candidates import Axes, Candidate
from tvm_codl.plan.crossing import Crossing, crossing, held, needed, on_host, volumes
from tvm_codl.plan.eliminate import Table
from tvm_codl.plan.halo import Parts
from tvm_codl.plan.plan import Placement
from tvm_codl.plan.simulate import CPU, GPU, Part, Step, Times, simulate

#: Relative uncertainty of a part's time, and so of which of two parts ends last.
UNCERTAINTY = 0.1
#: Parts along these axes of an output need only their own part of the weights.
_CUT_WITH_WEIGHTS = frozenset(("channels", "columns"))


class Costs(msgspec.Struct, frozen=True):
    """The tables that are minimised, in ms: one node for each operator, in the graph's order; ``edges`` by node numbers.

    A node is the sum of ``work``, the operator's time, and ``host``, the transfers of the network's inputs and outputs.
    ``crossings`` are the bytes that cross each edge, ``moved`` the DRAM traffic in bytes of each operator's CPU and GPU part,
    ``ends`` when these end, both started at once (0 for no part).

    A *choice* is the index of a candidate for each operator, in the graph's order.
    """

    graph: OpGraph
    candidates: Mapping[int, Sequence[Candidate]]
    sharing: TransferCost
    nodes: tuple[Table, ...]
    work: tuple[Table, ...]
    host: tuple[Table, ...]
    edges: dict[tuple[int, int], Table]
    crossings: dict[tuple[int, int], Crossing]
    moved: tuple[tuple[Table, Table], ...]
    ends: tuple[tuple[Table, Table], ...]
    # What simulate() works out once.
    _makers: list[list[int]] = msgspec.field(default_factory=list)
    _steps: dict[tuple[int, ...], Step] = msgspec.field(default_factory=dict)

    def chosen(self, choice: Sequence[int]) -> list[Candidate]:
        return [self.candidates[o.id][value] for o, value in zip(self.graph.operators, choice, strict=True)]

    def transfers(self, choice: Sequence[int]) -> list[dict[int, float]]:
        """For each operator the ms of its transfers by the node that made the input, -1 for the network's inputs and
        outputs.  Free transfers are left out."""
        transfers: list[dict[int, float]] = [{} for _ in choice]
        for node, (table, value) in enumerate(zip(self.host, choice, strict=True)):
            if table[value] > 0:
                transfers[node][-1] = float(table[value])
        for (a, b), table in self.edges.items():
            if (ms := float(table[choice[a], choice[b]])) > 0:
                transfers[b][a] = ms
        return transfers

    def growth(self, choice: Sequence[int]) -> list[Table]:
        """For each operator and candidate, by how much the sum of costs grows if this operator alone moves there."""
        sums = [table.copy() for table in self.nodes]
        for (a, b), edge in self.edges.items():
            sums[a] += edge[:, choice[b]]
            sums[b] += edge[choice[a], :]
        with np.errstate(invalid="ignore"):
            return [table - table[value] for table, value in zip(sums, choice, strict=True)]

    def simulate(self, choice: Sequence[int]) -> Times:
        """The simulated run of a plan."""
        if not self._makers:
            self._makers.extend([] for _ in choice)
            for a, b in self.crossings:
                self._makers[b].append(a)
        steps = []
        for node, makers in enumerate(self._makers):
            # Plans that are compared differ in few operators.
            key = (node, choice[node], *[choice[a] for a in makers])
            steps.append(self._steps.get(key) or self._steps.setdefault(key, self._step(node, makers, choice)))
        return simulate(steps, self.sharing)

    def _step(self, node: int, makers: Sequence[int], choice: Sequence[int]) -> Step:
        """An operator's parts, by its placement and those of ``makers``, the nodes that made its inputs."""
        sharing, value = self.sharing, choice[node]
        extra = [self.host[node].item(value)] * 2
        after: tuple[list[int], list[int]] = ([], [])
        moves: tuple[list[float], list[float]] = ([], [])
        # Milliseconds for each byte.
        joins, rates = sharing.join_ms_per_mb / 1e6, sharing.by_direction()
        copied = rates.to_cpu_ms_per_mb / 1e6, rates.to_gpu_ms_per_mb / 1e6
        far = sharing.far_cpu_ms_per_mb / 1e6, sharing.far_gpu_ms_per_mb / 1e6
        for a in makers:
            bytes, at = self.crossings[a, node], (choice[a], value)
            joining = bytes.joined.item(at) * joins
            for which, crossed in enumerate((bytes.to_cpu.item(at), bytes.to_gpu.item(at))):
                extra[which] += joining + crossed * far[which]
                if crossed > 0:
                    after[which].append(a)
                    if copied[which] > 0:
                        moves[which].append(crossed * copied[which])
        placed = self.candidates[self.graph.operators[node].id][value]

        def part(which: int, ms: float) -> Part:
            return Part(ms, self.moved[node][which].item(value), extra[which], tuple(after[which]), tuple(moves[which]))

        on = placed.placement.on
        return Step(
            None if on == "gpu" else part(CPU, placed.cpu_ms), None if on == "cpu" else part(GPU, placed.gpu_ms)
        )


def build_costs(
    graph: OpGraph, candidates: Mapping[int, Sequence[Candidate]], sharing: TransferCost, axes: Axes
) -> Costs:
    """Node and edge costs in milliseconds for every choice, and every pair of choices, of placements."""
    maker = {id: node for node, operator in enumerate(graph.operators) for id in operator.outputs}
    placed = [[candidate.placement for candidate in candidates[operator.id]] for operator in graph.operators]
    legal = [dict(axes.get(operator.id, {})) for operator in graph.operators]
    has: dict[int, Parts] = {}
    ends = [np.zeros(len(choices)) for choices in placed]
    moved: list[tuple[Table, Table]] = []
    stored = sum(_weights(operator) for operator in graph.operators)
    crossings: dict[tuple[int, int], Crossing] = {}
    # Networks repeat blocks: equal operators with equal placements are looked at once, as are equal crossings.
    known: dict[tuple[object, ...], tuple[list[Parts], list[Parts], tuple[Table, Table]]] = {}
    cache: dict[tuple[object, ...], Crossing] = {}
    readers = Counter(id for operator in graph.operators for id in set(operator.inputs))
    for node, operator in enumerate(graph.operators):
        again = map(operator.inputs.index, operator.inputs)  # an operator may read a tensor twice
        like = structure(operator, graph), *again, *legal[node].items(), *placed[node]
        if like not in known:
            reads = needed(operator, graph, placed[node], legal[node])
            makes = [held(graph.tensors[id], placed[node], legal[node]) for id in operator.outputs]
            touched = dict(zip((*operator.inputs, *operator.outputs), (*reads, *makes), strict=True))
            tensors = [(graph.tensors[id], parts) for id, parts in touched.items()]
            known[like] = reads, makes, _moved(operator, placed[node], legal[node], tensors, sharing.contention, stored)
        reads, makes, traffic = known[like]
        wanted = dict(zip(operator.inputs, reads, strict=True))
        has |= zip(operator.outputs, makes, strict=True)
        moved.append(traffic)
        for id, parts in wanted.items():
            tensor = graph.tensors[id]
            if id not in maker:
                start = crossing(tensor, on_host(tensor), parts)
                # The inputs are there before the run starts: no waits.  Each moves once, which its readers share.
                saved = sharing.move_ms(0.0, start.to_gpu[0]) * (1 - 1 / readers[id])
                ends[node] += sharing.bytes_ms(np.zeros(1), start.to_gpu[0], start.joined[0]) - saved
                continue
            edge = (maker[id], node)
            key = (tensor.shape, tensor.dtype, *(boxes.tobytes() for p in (has[id], parts) for boxes in (p.cpu, p.gpu)))
            crossed = cache[key] = cache.get(key) or crossing(tensor, has[id], parts)
            crossings[edge] = crossings[edge] + crossed if edge in crossings else crossed
    for id in graph.outputs:
        if id in maker:
            end = crossing(graph.tensors[id], has[id], on_host(graph.tensors[id]))
            ends[maker[id]] += sharing.edge_ms(end.to_cpu[:, 0], end.to_gpu[:, 0], end.joined[:, 0])
    part_ends = [_ends(candidates[o.id], sharing, *bytes) for o, bytes in zip(graph.operators, moved, strict=True)]
    work = [np.maximum(*each) for each in part_ends]
    with np.errstate(invalid="ignore"):  # inf - inf where neither processor runs it: neither part is last
        later = [np.nan_to_num(cpu - gpu, nan=0.0) for cpu, gpu in part_ends]
    edges = {}
    for (a, b), c in crossings.items():
        edges[a, b] = sharing.bytes_ms(c.to_cpu, c.to_gpu, c.joined)
        if b == a + 1:
            # Only the last operator's output may be waited for: older ones are there already.
            doubt = UNCERTAINTY * work[a][:, None]
            edges[a, b] = edges[a, b] + sharing.wait_ms(c.to_cpu, c.to_gpu, later[a][:, None], doubt)
    nodes = tuple(w + end for w, end in zip(work, ends, strict=True))
    return Costs(
        graph, candidates, sharing, nodes, tuple(work), tuple(ends), edges, crossings, tuple(moved), tuple(part_ends)
    )


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
    """DRAM traffic in bytes of the CPU's and the GPU's part of an operator, for each placement.

    Weights are read once a run, unless the cache holds the whole network's ``stored`` bytes; a part along the axis that cuts
    them reads its share, any other part all.  A part's tensors count where they do not fit in the cache.
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
    cpu, gpu = (
        side.beyond(own) + (part if stored > side.cache else 0.0)
        for side, own, part in zip(sides, (cpu, gpu), weights, strict=True)
    )
    return cpu, gpu


def _weights(operator: Operator) -> float:
    """Bytes."""
    return float(sum(bytes_of(const.shape, const.dtype) for const in operator.consts))
