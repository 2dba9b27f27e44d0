from __future__ import annotations

import random

import pytest

from benchmarks.random_networks import FAN_OUT, FORMS, Wiring
from tests.unit.plan.networks import Network
from tests.unit.plan.test_candidates import ByFlops
from tests.unit.plan.test_search import legal
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.candidates import candidates
from tvm_codl.plan.search import search
from tvm_codl.plan.verify import verify_plan


def grown(form: str, count: int, seed: int = 0) -> OpGraph:
    network = Network(1, 16, 16, 32)
    made = network.conv(0, 32)
    network.add(0, made)
    conv, add = network.operators
    net = Wiring((1, 16, 16, 32), [conv], [add], random.Random(seed))
    FORMS[form](net, count)
    return net.graph()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [3, 40])
def test_a_random_network_can_be_planned(form: str, count: int) -> None:
    graph = grown(form, count)
    assert len(graph.operators) >= count
    made = {0}
    for number, operator in enumerate(graph.operators):
        assert operator.id == number and made.issuperset(operator.inputs)
        made.update(operator.outputs)
    assert made == {tensor.id for tensor in graph.tensors}
    found = search(graph, candidates(graph, legal(graph), ByFlops()), TransferCost(), legal(graph))
    verify_plan(found.plan, graph, legal(graph))
    assert found.bound_ms <= found.total_ms


def test_a_seed_draws_the_same_network() -> None:
    assert grown("any order", 40, seed=1) == grown("any order", 40, seed=1) != grown("any order", 40, seed=2)


def test_a_tensor_is_read_a_hundred_times() -> None:
    graph = grown("fan-out", 3 * FAN_OUT)
    assert sum(0 in operator.inputs for operator in graph.operators) == FAN_OUT
