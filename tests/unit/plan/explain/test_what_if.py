from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from tests.examples import examples
from tests.unit.plan.networks import Network, convolutions
from tests.unit.plan.test_candidates import ByFlops
from tests.unit.plan.test_search import legal
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.device.power import Power
from tvm_codl.errors import UsageError, UserError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.candidates import legal_cuts
from tvm_codl.plan.eliminate import minimise
from tvm_codl.plan.energy import Energy
from tvm_codl.plan.explain.prices import Prices
from tvm_codl.plan.explain.text import WIDTH
from tvm_codl.plan.explain.what_if import Move, Prediction, WhatIf, parse_asked, what_if, what_if_text
from tvm_codl.plan.plan import Placement, Plan, uniform_plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import search
from tvm_codl.plan.verify import verify_plan
from tvm_codl.records.settings import Settings
from tvm_codl.records.workload import Workload

SHARING = TransferCost(0.01, 0.02, 0.0, 0.3)


def problem(graph: OpGraph, sharing: TransferCost = SHARING, costs: Any = None) -> Problem:
    return Problem(graph, legal(graph), costs or ByFlops(), sharing, "net", "phone")


def planned(of: Problem) -> Plan:
    return search(of.graph, of.options, of.sharing, of.axes, of.name, of.device).plan


@st.composite
def asked(draw: Any) -> tuple[Problem, dict[int, Placement]]:
    """A network, and a legal placement for some of its operators, among the candidates or not."""
    network = Network(1, 20, 20, 32)
    ends = [0]
    for _ in range(draw(st.integers(1, 5))):
        source = draw(st.sampled_from(ends))
        kind = draw(st.sampled_from(["conv1", "conv3", "add", "opaque"]))
        if kind == "add":
            ends.append(network.add(source, draw(st.sampled_from(ends))))
        else:
            ends.append(network.opaque(source) if kind == "opaque" else network.conv(source, 32, int(kind[-1])))
    graph = network.graph()
    found = {}
    for operator in graph.operators:
        places = [Placement("cpu"), Placement("gpu")]
        for axis in legal(graph)[operator.id].values():
            places += [Placement("split", axis.name, at) for at in legal_cuts(axis)]
        if draw(st.booleans()):
            found[operator.id] = draw(st.sampled_from(places))
    return problem(graph, TransferCost(draw(st.sampled_from([0.0, 0.01, 1.0])), 0.02)), found


@given(asked())
@settings(max_examples=examples(50))
def test_what_is_asked_for_is_there_and_the_rest_is_the_best_around_it(
    drawn: tuple[Problem, dict[int, Placement]],
) -> None:
    of, wanted = drawn
    found = what_if(of, wanted)
    verify_plan(found.plan, of.graph, of.axes)
    placed = {o.operator: o.placement for o in found.plan.operators}
    assert all(placed[id] == placement for id, placement in wanted.items())
    plan = planned(of)
    prices = Prices.of(of, [plan], wanted)
    now, then = prices.choice(plan), prices.choice(found.plan)
    forced = [prices.index(n, wanted.get(o.id, placed_now)) for n, (o, placed_now) in enumerate(_places(of, plan))]

    # It plans no longer than the exact minimum of the sums in which what was asked for is fixed.
    least = minimise(
        [
            table if o.id not in wanted else np.where(np.arange(len(table)) == forced[n], table, np.inf)
            for n, (o, table) in enumerate(zip(of.graph.operators, prices.costs.nodes, strict=True))
        ],
        prices.costs.edges,
    )
    uniform = [(on,) * len(then) for on in (0, 1)]
    tie = any(all(x in (u[n], forced[n]) for n, x in enumerate(least.choice)) for u in uniform)
    assert tie or found.replanned.ms <= prices.times(least.choice).total_ms + 1e-9
    assert found.replanned.ms == pytest.approx(found.plan.predicted_ms, abs=1e-6)
    assert found.as_is.ms == pytest.approx(prices.times(now).total_ms)
    assert found.alone.ms == pytest.approx(prices.times(forced).total_ms)
    assert found.replanned.ms <= found.alone.ms + 1e-9
    assert {m.operator for m in found.moves} == {o.id for n, o in enumerate(of.graph.operators) if now[n] != then[n]}
    assert {m.operator for m in found.moves if m.asked} <= wanted.keys()
    text = what_if_text(found)
    assert f"{found.alone.ms:.3f} ms" in text and f"{found.replanned.ms:.3f} ms" in text


def _places(of: Problem, plan: Plan) -> list[Any]:
    return [(operator, line.placement) for operator, line in zip(of.graph.operators, plan.operators, strict=True)]


def test_an_operator_off_its_chains_cut_costs_and_keeps_what_is_known_of_it() -> None:
    """A chain of 1x1 convolutions cut alike shares nothing; with one cut elsewhere rows cross, wherever the others go."""
    network = Network(1, 40, 40, 32)
    tensor = 0
    for _ in range(4):
        tensor = network.conv(tensor, 32, 1)
    of = problem(network.graph(), TransferCost(0.5, 0.5, join_ms_per_mb=5.0))
    found = what_if(of, {1: Placement("split", "height", 28)})
    assert {(o.placement.axis, o.placement.at) for o in planned(of).operators} == {("height", 30)}
    assert found.as_is.ms < found.replanned.ms <= found.alone.ms
    line = found.plan.operators[1]
    assert (line.reason, line.cpu_ms > 0, line.gpu_ms > 0) == ("as was asked", True, True)


def test_it_is_compared_with_the_plan_that_is_given() -> None:
    of = problem(convolutions(3))
    plan = uniform_plan(of.graph, "gpu", "net", "phone")
    found = what_if(of, {0: Placement("gpu")}, plan)
    assert found.as_is == found.alone
    assert found.replanned.ms < found.as_is.ms
    assert not any(m.asked for m in found.moves)
    nothing = what_if(of, {o.operator: o.placement for o in found.plan.operators}, found.plan)
    assert nothing.moves == () and "nothing changes" in what_if_text(nothing)


def test_the_settings_of_the_plan_stay() -> None:
    of = problem(convolutions(3))
    settings = Settings(flush_every=4, cpu_threads=1)
    plan = replace(uniform_plan(of.graph, "gpu", "net", "phone"), settings=settings)
    assert what_if(of, {0: Placement("gpu")}, plan).plan.settings == settings


def test_energy_is_planned_and_told_where_it_is_the_objective() -> None:
    of = problem(convolutions(3, size=40))
    found = what_if(of, {1: Placement("cpu")}, energy=Energy(Power(0.1, 9.0, 1.0, 10.0)))
    assert [o.placement.on for o in found.plan.operators] == ["gpu", "cpu", "gpu"]
    assert (
        found.replanned.mj == pytest.approx(found.plan.predicted_mj, abs=1e-6) and found.replanned.mj > found.as_is.mj
    )
    assert "a model, not a measurement" in what_if_text(found)
    assert what_if(of, {1: Placement("cpu")}).as_is.mj == 0


class NoGpu(ByFlops):
    def predict(self, workloads: Sequence[Workload], processor: str) -> NDArray[np.float64]:
        times = super().predict(workloads, processor)
        return times if processor == "cpu" else np.full(len(times), math.inf)


def test_where_an_operator_does_not_run_it_cannot_be() -> None:
    with pytest.raises(UserError, match=r"operator 1 \(conv2d_1\) does not run where"):
        what_if(problem(convolutions(2), costs=NoGpu()), {1: Placement("gpu")})


def test_the_candidates_stay_what_the_search_wants() -> None:
    of = problem(convolutions(2))
    plan = planned(of)
    fixed = {0: Placement("gpu"), 1: plan.operators[1].placement}
    kept = Prices.of(of, [plan]).restrict(fixed)
    for id, placement in fixed.items():
        assert [o.placement.on for o in kept[id][:2]] == ["cpu", "gpu"]
        assert [o.placement for o in kept[id] if np.isfinite(o.ms)] == [placement]
    assert search(of.graph, kept, of.sharing, of.axes).plan.operators[0].placement == Placement("gpu")
    odd = Placement("split", "height", 7)
    for more in (odd, replace(odd, at=8, over=(1, 2))):
        (priced,) = (c for c in Prices.of(of, more={1: more}).choices[1] if c.placement == more)
        assert priced.cpu_ms > 0 and priced.gpu_ms > 0


def test_operators_are_named_by_number_or_by_a_name_of_their_own() -> None:
    network = Network(1, 16, 16, 32)
    tensor = network.conv(0, 32, name="stem=1")
    for _ in range(2):
        tensor = network.conv(tensor, 32, name="block")
    graph = network.graph()
    axes = legal(graph)
    assert parse_asked(["stem=1=gpu", "2 = height@12", "1=channels@16"], graph, axes) == {
        0: Placement("gpu"),
        2: Placement("split", "height", 12),
        1: Placement("split", "channels", 16),
    }
    assert parse_asked(["0=height@8+2-1"], graph, axes) == {0: Placement("split", "height", 8, (2, 1))}
    for text, error, words in (
        ("block=cpu", UserError, "their numbers: 1, 2"),
        ("stem=cpu", UserError, "similar names: stem=1"),
        ("9=cpu", UserError, "operators 0 to 2"),
        ("0=height@16", UserError, "operator 0 (stem=1): cut 16 is outside 1..15"),
        ("0=width@3", UserError, "cannot be split along 'width'"),
        ("0", UsageError, "OP=PLACEMENT"),
        ("0=", UsageError, "OP=PLACEMENT"),
        ("0=npu", UsageError, "'npu' is no placement"),
        ("0=height@-3", UsageError, "no placement"),
    ):
        with pytest.raises(error) as caught:
            parse_asked([text], graph, axes)
        assert words in str(caught.value), text
    with pytest.raises(UsageError, match="placed twice"):
        parse_asked(["0=cpu", "stem=1=gpu"], graph, axes)


def test_a_cut_of_a_plan_that_is_no_candidate_is_priced() -> None:
    of = problem(convolutions(2))
    plan = planned(of)
    odd = replace(plan.operators[0], placement=Placement("split", "height", 5))
    edited = replace(plan, operators=(odd, *plan.operators[1:]))
    found = what_if(of, {1: Placement("cpu")}, edited)
    assert found.as_is.ms > planned(of).predicted_ms
    assert found.moves[0].before == odd.placement


def test_predictions_are_corrected_as_plans_are() -> None:
    of = dataclasses.replace(problem(convolutions(3)), correction=1.5)
    found = what_if(of, {0: Placement("cpu")})
    assert found.plan.correction == 1.5 and found.replanned.ms == pytest.approx(found.plan.predicted_ms, abs=1e-6)
    assert found.as_is.ms == pytest.approx(1.5 * planned(of).predicted_ms, abs=1e-6)


def test_lines_fit_with_long_names_cuts_and_times() -> None:
    before, after = (Placement("split", "channels", at, (16, 16)) for at in (1024, 2048))
    move = Move(1000, "a_name_that_is_far_too_long_for_any_table_12", before, after, 1234.5, 2345.6, True)
    said = Prediction(12345.678, 12345.678)
    text = what_if_text(WhatIf(said, said, said, (move,) * 1000, uniform_plan(convolutions(1), "cpu")))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "12  channels@1024+16-16  channels@2048+16-16  1234.5   2345.6  asked" in text
    assert " ".join(text.split()).count("12345.678 mJ") == 3
