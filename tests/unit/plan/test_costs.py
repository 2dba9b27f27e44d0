from __future__ import annotations

import numpy as np
import pytest

from tests.unit.plan.networks import Network
from tests.unit.plan.test_improve import COST, two_branches
from tests.unit.plan.test_search import legal
from tvm_codl.cost.contention import Contention, Side
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.opgraph import Node, OpGraph, Ref
from tvm_codl.graph.split import axes
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.costs import Costs, build_costs
from tvm_codl.plan.plan import Placement

ROWS, INPUTS, OUTPUTS = 8, 512, 256
WEIGHTS, READ, WRITTEN = 4.0 * INPUTS * OUTPUTS, 4.0 * ROWS * INPUTS, 4.0 * ROWS * OUTPUTS
PLACES = (
    Placement("cpu"),
    Placement("gpu"),
    Placement("split", "columns", OUTPUTS // 4),
    Placement("split", "rows", ROWS // 2),
)


def matrix() -> OpGraph:
    """One dense layer: (8, 512) times a matrix of (256, 512) weights."""
    network = Network(ROWS, INPUTS)
    result = (ROWS, OUTPUTS)
    attrs = {"units": OUTPUTS, "out_dtype": ""}
    body = (Node("nn.dense", attrs, (Ref("input", 0), Ref("const", 0)), (result,), "float32"),)
    network._add("dense", (0,), body, ((OUTPUTS, INPUTS),), result, 2 * ROWS * INPUTS * OUTPUTS)
    return network.graph()


def priced(contention: Contention, ms: float = 1.0) -> Costs:
    graph = matrix()
    legal = {operator.id: axes(operator, graph) for operator in graph.operators}
    whole = [Candidate(PLACES[0], ms, 0.0), Candidate(PLACES[1], 0.0, ms)]
    halves = [Candidate(place, ms / 2, ms / 2) for place in PLACES[2:]]
    return build_costs(graph, {0: (*whole, *halves)}, TransferCost(0.0, 0.0, 0.0, 0.0, contention=contention), legal)


def test_a_part_of_the_outputs_reads_its_own_weights_and_a_part_of_the_rows_all_of_them() -> None:
    ((cpu, gpu),) = priced(Contention()).moved
    assert cpu[0] == gpu[1] == WEIGHTS + READ + WRITTEN
    assert cpu[1] == gpu[0] == 0
    assert (cpu[2], gpu[2]) == (WEIGHTS / 4 + READ + WRITTEN / 4, WEIGHTS * 3 / 4 + READ + WRITTEN * 3 / 4)
    assert cpu[3] == gpu[3] == WEIGHTS + READ / 2 + WRITTEN / 2


def test_weights_that_a_cache_holds_are_not_read_from_memory_and_tensors_neither() -> None:
    small = priced(Contention(Side(cache=WEIGHTS / 2), Side(cache=WEIGHTS / 2))).moved[0]
    assert [part.tolist() for part in small] == [
        [WEIGHTS, 0.0, WEIGHTS / 4, WEIGHTS],
        [0.0, WEIGHTS, WEIGHTS * 3 / 4, WEIGHTS],
    ]
    large = priced(Contention(Side(cache=2 * WEIGHTS), Side(cache=2 * WEIGHTS))).moved[0]
    assert not np.any(large)


def test_halves_of_a_matrix_that_only_wait_for_memory_gain_what_the_memory_has_left() -> None:
    """One processor reads the weights in 1 ms; both together read 1.25 times as fast."""
    alone = WEIGHTS + READ + WRITTEN
    (work,) = priced(Contention(bandwidth=1.25 * alone)).work
    assert work[:2].tolist() == [1.0, 1.0]
    both = (WEIGHTS + 2 * READ + WRITTEN) / 0.5 / (1.25 * alone)
    assert work[2] < 1.0
    assert work[2] == pytest.approx(0.5 * both, rel=0.3)
    assert priced(Contention()).work[0][2] == 0.5
    # Rows are cut: both read all the weights, and nothing is gained.
    assert work[3] > 0.5 * 2 * WEIGHTS / 0.5 / (1.25 * alone) * 0.99 > 1.0


def test_growth_is_that_of_the_sum_if_one_operator_moves() -> None:
    graph, options = two_branches()
    costs = build_costs(graph, options, COST, legal(graph))

    def total(choice: tuple[int, ...]) -> float:
        nodes = sum(float(table[value]) for table, value in zip(costs.nodes, choice, strict=True))
        return nodes + sum(float(edge[choice[a], choice[b]]) for (a, b), edge in costs.edges.items())

    grown = [total((0, 0, value, 1, 0)) - total((0, 0, 0, 1, 0)) for value in (0, 1)]
    np.testing.assert_allclose(costs.growth((0, 0, 0, 1, 0))[2], grown)


def test_what_crosses_between_two_memories_moves_by_its_direction_in_the_simulated_run() -> None:
    graph, options = two_branches()
    whole = [[c.placement.on for c in options[o.id]] for o in graph.operators]
    choice = tuple(on.index("cpu" if node % 2 else "gpu") for node, on in enumerate(whole))

    def total(**rates: float) -> float:
        return build_costs(graph, options, TransferCost(0.0, 0.0, **rates), legal(graph)).simulate(choice).total_ms

    alike = total(to_cpu_ms_per_mb=1e3, to_gpu_ms_per_mb=1e3)
    assert alike == total(copy_ms_per_mb=1e3), "what older versions measured is either direction"
    assert total() < total(to_cpu_ms_per_mb=1e3) <= alike
    assert total() < total(to_gpu_ms_per_mb=1e3) <= alike


def test_an_input_of_the_network_moves_to_the_gpu_once_however_many_operators_read_it() -> None:
    readers = 3
    network = Network(1, 16, 16, 4)
    graph = network.graph(*(network.opaque(0) for _ in range(readers)))
    on_gpu = {operator.id: (Candidate(Placement("gpu"), 0.0, 1.0),) for operator in graph.operators}
    costs = build_costs(graph, on_gpu, TransferCost(0.0, 0.0, 0.0, to_gpu_ms_per_mb=1.0), {})
    megabytes = 16 * 16 * 4 * 4e-6
    assert costs.simulate((0,) * readers).total_ms == pytest.approx(readers + megabytes)


def test_operators_that_differ_only_in_what_they_read_twice_have_costs_of_their_own() -> None:
    """Equal operators are looked at once; a tensor that one of them reads twice still counts once."""
    network = Network(1, 16, 16, 32)
    twice = network.add(0, 0)
    network.add(0, twice)
    graph = network.graph()
    whole = {o.id: (Candidate(PLACES[0], 1.0, 0.0), Candidate(PLACES[1], 0.0, 1.0)) for o in graph.operators}
    size = 4.0 * 16 * 16 * 32
    moved = build_costs(graph, whole, TransferCost(), legal(graph)).moved
    assert [cpu.tolist() for cpu, _ in moved] == [[2 * size, 0.0], [3 * size, 0.0]]
    assert [gpu.tolist() for _, gpu in moved] == [[0.0, 2 * size], [0.0, 3 * size]]
