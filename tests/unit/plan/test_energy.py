from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.plan.networks import convolutions
from tests.unit.plan.test_candidates import ByFlops
from tests.unit.plan.test_exact import networks
from tests.unit.plan.test_search import legal
from tvm_codl.cost.contention import Contention, Side
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.device.power import Power
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.candidates import Candidate, candidates
from tvm_codl.plan.costs import build_costs
from tvm_codl.plan.eliminate import evaluate
from tvm_codl.plan.energy import Energy
from tvm_codl.plan.files import parse_plan, plan_json
from tvm_codl.plan.plan import Placement
from tvm_codl.plan.search import search
from tvm_codl.plan.simulate import Part, Step, Times, simulate

FREE = TransferCost(0.0, 0.0, 0.0, 0.0)
#: The CPU of ByFlops is three times as fast as the GPU.
FRUGAL_GPU = Energy(Power(idle_w=0.1, cpu_w=5.0, gpu_w=1.0, both_w=6.0))

powers = st.tuples(*[st.floats(0, 8)] * 4).map(lambda w: Power(*sorted(w)))


@given(networks(), powers, st.sampled_from([0.0, 0.05, 0.5]))
@settings(max_examples=examples(60))
def test_the_search_finds_the_exhaustive_optimum_of_its_energy(
    drawn: tuple[OpGraph, dict[int, Sequence[Candidate]]], power: Power, wait: float
) -> None:
    graph, options = drawn
    sharing = TransferCost(wait, wait / 2, 10.0, 5.0, 1.0, 2.0, contention=Contention(Side(0.2), Side(0.1)))
    energy = Energy(power)
    found = search(graph, options, sharing, legal(graph), energy=energy, simulations=0)
    weighed = energy.weigh(build_costs(graph, options, sharing, legal(graph)))
    best = min(
        evaluate(choice, weighed.nodes, weighed.edges)
        for choice in itertools.product(*(range(len(options[o.id])) for o in graph.operators))
    )
    assert found.exact
    assert found.bound_ms == pytest.approx(best, abs=1e-6)
    if len({o.placement.on for o in found.plan.operators}) > 1:
        assert found.total_ms == pytest.approx(best, abs=1e-6)
    # Either processor alone never draws less, by the simulated run.
    for on in (0, 1):
        alone = search(
            graph, {o.id: _only(options[o.id], on) for o in graph.operators}, sharing, legal(graph), energy=energy
        )
        assert found.plan.predicted_mj <= alone.plan.predicted_mj + 1e-6


def _only(options: Sequence[Candidate], on: int) -> tuple[Candidate, Candidate]:
    inf = float("inf")
    return (
        (options[0], Candidate(Placement("gpu"), 0.0, inf))
        if on == 0
        else (Candidate(Placement("cpu"), inf, 0.0), options[1])
    )


def test_a_slow_but_frugal_gpu_gets_the_network() -> None:
    graph = convolutions(4, size=40)
    options = candidates(graph, legal(graph), ByFlops())
    fast = search(graph, options, FREE, legal(graph)).plan
    plan = search(graph, options, FREE, legal(graph), energy=FRUGAL_GPU).plan
    assert {o.placement.on for o in fast.operators} == {"split"}
    assert {o.placement.on for o in plan.operators} == {"gpu"}
    assert plan.predicted_ms > fast.predicted_ms
    assert plan.predicted_mj == pytest.approx(1.0 * plan.predicted_ms)
    assert all("mJ gpu" in o.reason and "on cpu alone" in o.reason for o in plan.operators)
    assert parse_plan(plan_json(plan)) == plan
    assert "predicted_mj" not in plan_json(fast)


def test_a_frugal_cpu_gets_it_back() -> None:
    graph = convolutions(4, size=40)
    options = candidates(graph, legal(graph), ByFlops())
    power = Power(idle_w=0.1, cpu_w=1.0, gpu_w=5.0, both_w=6.0)
    assert {
        o.placement.on for o in search(graph, options, FREE, legal(graph), energy=Energy(power)).plan.operators
    } == {"cpu"}


@given(networks(), st.floats(0.1, 9))
@settings(max_examples=examples(30))
def test_where_every_state_draws_the_same_the_least_energy_is_the_least_time(
    drawn: tuple[OpGraph, dict[int, Sequence[Candidate]]], watts: float
) -> None:
    graph, options = drawn
    sharing = TransferCost(0.05, 0.02, 10.0, 5.0)
    energy = Energy(Power(watts, watts, watts, watts))
    plan, fast = (
        search(graph, options, sharing, legal(graph), energy=energy),
        search(graph, options, sharing, legal(graph)),
    )
    assert plan.plan.predicted_ms == pytest.approx(fast.plan.predicted_ms, abs=1e-6)
    assert plan.plan.predicted_mj == pytest.approx(watts * fast.plan.predicted_ms, abs=1e-5)
    assert plan.total_ms == pytest.approx(watts * fast.total_ms, rel=1e-9)


def test_with_idle_for_nothing_and_both_at_the_sum_each_processor_pays_for_its_own_work() -> None:
    """Then splitting saves no energy, however the times are: the sum of the parts' work counts."""
    graph = convolutions(3, size=40)
    options = candidates(graph, legal(graph), ByFlops())
    plan = search(graph, options, FREE, legal(graph), energy=Energy(Power(0.0, 2.0, 2.0, 4.0))).plan
    assert {o.placement.on for o in plan.operators} == {"cpu"}, "it is three times as fast"
    assert plan.predicted_mj == pytest.approx(2.0 * sum(o.cpu_ms for o in plan.operators))


@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5), st.booleans(), st.booleans()), min_size=1, max_size=8),
    powers,
)
def test_the_energy_of_a_run_is_its_states_watts_over_its_time(
    drawn: list[tuple[float, float, bool, bool]], power: Power
) -> None:
    """Against a sum over many small steps of time."""
    steps = []
    for number, (cpu, gpu, cpu_waits, gpu_waits) in enumerate(drawn):
        before = (number - 1,) if number else ()
        steps.append(
            Step(
                Part(cpu, after=before if cpu_waits else ()) if cpu > 0.01 else None,
                Part(gpu, after=before if gpu_waits else ()) if gpu > 0.01 else None,
            )
        )
    times = simulate(steps, TransferCost(0.1, 0.2, start_ms=0.3, contention=Contention(Side(0.5), Side(0.25))))
    assert Energy(power).measure(times) == pytest.approx(_summed(times, power), rel=0.02, abs=0.02)
    same = Power(power.both_w, power.both_w, power.both_w, power.both_w)
    assert Energy(same).measure(times) == pytest.approx(power.both_w * times.total_ms, abs=1e-9)


def _summed(times: Times, power: Power, count: int = 4000) -> float:
    total = 0.0
    for k in range(count):
        now = (k + 0.5) / count * times.total_ms
        cpu, gpu = (
            any(s[which] <= now < e[which] for s, e in zip(times.starts, times.ends, strict=True)) for which in (0, 1)
        )
        total += power.both_w if cpu and gpu else power.cpu_w if cpu else power.gpu_w if gpu else power.idle_w
    return total * times.total_ms / count


def test_a_run_of_one_part_each_beside_the_other() -> None:
    times = simulate([Step(Part(3.0), Part(5.0))], TransferCost(0.0, 0.0, start_ms=1.0))
    assert (times.starts, times.ends, times.total_ms) == (((0.0, 1.0),), ((3.0, 6.0),), 6.0)
    assert Energy(Power(1.0, 10.0, 100.0, 1000.0)).measure(times) == pytest.approx(10 * 1 + 1000 * 2 + 100 * 3)
