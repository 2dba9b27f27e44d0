from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from msgspec.structs import replace

from tests.unit.plan.networks import Network, convolutions
from tests.unit.plan.test_candidates import ByFlops
from tvm_codl.cost.contention import Contention, Side
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import Axis, axes
from tvm_codl.plan.baselines.ideal import ideal_ms
from tvm_codl.plan.candidates import candidates
from tvm_codl.plan.files import parse_plan, plan_json
from tvm_codl.plan.plan import Placement, uniform_plan
from tvm_codl.plan.search import search
from tvm_codl.plan.verify import verify_plan

FREE = TransferCost(0.0, 0.0, 0.0, 0.0)


def legal(graph: OpGraph) -> dict[int, dict[str, Axis]]:
    return {operator.id: axes(operator, graph) for operator in graph.operators}


def test_free_sharing_splits_everything_near_the_ideal() -> None:
    graph = convolutions(3, size=40)
    plan = search(graph, candidates(graph, legal(graph), ByFlops()), FREE, legal(graph), "net", "phone").plan
    assert [o.placement for o in plan.operators] == [Placement("split", "height", 30)] * 3
    ideal = ideal_ms([o.cpu_ms for o in plan.operators], [o.gpu_ms for o in plan.operators])
    assert plan.predicted_ms == pytest.approx(ideal)
    assert (plan.model, plan.device) == ("net", "phone")


def test_dear_waits_leave_everything_on_the_better_processor() -> None:
    graph = convolutions(3)
    dear = TransferCost(1e3, 1e3, copy_ms_per_mb=1e6)
    plan = search(graph, candidates(graph, legal(graph), ByFlops()), dear, legal(graph)).plan
    assert {o.placement.on for o in plan.operators} == {"cpu"}
    assert all("not worth splitting" in o.reason for o in plan.operators)


def test_a_dear_wait_of_one_processor_moves_the_cuts() -> None:
    """Between convolutions split by rows both processors wait for the other's border; who comes last waits for nothing."""
    graph = convolutions(4, size=40)
    options = candidates(graph, legal(graph), ByFlops())
    plans = {}
    for dear in ("cpu", "gpu"):
        waits = {"wait_cpu_ms": 0.1, "wait_gpu_ms": 0.1, f"wait_{dear}_ms": 8.0}
        sharing = TransferCost(join_ms_per_mb=0.0, **waits)
        plans[dear] = search(graph, options, sharing, legal(graph), simulations=0).plan
        splits = [o for o in plans[dear].operators if o.placement.on == "split"]
        assert len(splits) >= 3
        assert all(o.share_ms < 1.0 for o in splits), "a wait of 8 ms is avoided"
    assert plans["cpu"].operators != plans["gpu"].operators


def test_contention_slows_a_split_and_its_prediction() -> None:
    graph = convolutions(3, size=40)
    options = candidates(graph, legal(graph), ByFlops())
    free = search(graph, options, FREE, legal(graph)).plan
    slowed = replace(FREE, contention=Contention(Side(always=0.2), Side(always=0.2)))
    plan = search(graph, options, slowed, legal(graph)).plan
    assert plan.predicted_ms == pytest.approx(1.2 * free.predicted_ms, rel=0.02)
    hopeless = replace(FREE, contention=Contention(Side(always=9.0), Side(always=9.0)))
    assert {o.placement.on for o in search(graph, options, hopeless, legal(graph)).plan.operators} == {"cpu"}


def test_a_run_without_halos_is_one_chain() -> None:
    network = Network(1, 40, 40, 32)
    tensor = network.conv(0, 32, 3)
    for kernel in (1, 1, 3, 1):
        tensor = network.conv(tensor, 32, kernel)
    graph = network.graph()
    options = candidates(graph, legal(graph), ByFlops())
    plan = search(graph, options, TransferCost(0.01, 0.01), legal(graph)).plan
    assert {o.placement.on for o in plan.operators} == {"split"}
    assert [o.chain for o in plan.operators] == [0, 0, 0, 1, 1]
    assert [o.share_ms > 0 for o in plan.operators] == [False, False, False, True, True]


def test_a_processor_that_cannot_run_an_operator_is_avoided() -> None:
    graph = convolutions(2)
    options = dict(candidates(graph, legal(graph), ByFlops()))
    options[1] = tuple(replace(c, cpu_ms=np.inf) if c.placement.on != "gpu" else c for c in options[1])
    plan = search(graph, options, TransferCost(1e3, 1e3), legal(graph)).plan
    assert plan.operators[1].placement == Placement("gpu")
    assert "the cpu does not run it" in plan.operators[1].reason
    assert parse_plan(plan_json(plan)) == plan
    options[0] = tuple(replace(c, cpu_ms=np.inf, gpu_ms=np.inf) for c in options[0])
    with pytest.raises(UserError, match=r"operator 0 .* neither processor") as raised:
        search(graph, options, FREE, legal(graph), "net", "a phone")
    kind = graph.operators[0].kind
    assert f"tvm-codl records export --format csv --mode alone --kind {kind} --device 'a phone'" in raised.value.next
    assert "--retry-failed" in raised.value.next


def test_without_room_for_tables_the_gap_is_stated_and_one_processor_is_never_beaten() -> None:
    net = Network(1, 16, 16, 32)
    a = net.conv(0, 32)
    b = net.conv(a, 32)
    c = net.add(a, b)
    d = net.add(b, c)
    e = net.add(a, d)
    net.add(c, e)  # every operator before the last has three neighbours or more: none can be taken out of the graph
    graph = net.graph()
    options = candidates(graph, legal(graph), ByFlops())
    found = search(graph, options, TransferCost(), legal(graph), limit=10, simulations=0)
    best = search(graph, options, TransferCost(), legal(graph), simulations=0)
    assert best.exact and found.exact == (found.bound_ms == found.total_ms)
    assert found.bound_ms <= best.total_ms + 1e-6 <= found.total_ms + 2e-6
    assert found.total_ms <= min(found.cpu_only_ms, found.gpu_only_ms) + 1e-6


def test_uniform_plans_are_legal() -> None:
    graph = convolutions(2)
    both: tuple[Literal["cpu", "gpu"], ...] = ("cpu", "gpu")
    for on in both:
        plan = uniform_plan(graph, on, "net", "phone")
        verify_plan(plan, graph, legal(graph))
        assert {o.placement for o in plan.operators} == {Placement(on)}
