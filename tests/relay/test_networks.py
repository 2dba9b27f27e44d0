"""Whole networks under random plans give the original's answer."""

from __future__ import annotations

import random

import pytest

from tests.relay.networks import NETWORKS
from tests.relay.oracle import assert_same, partitioned, plan_of, random_inputs, run_together
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import NoSplit, axes, piece
from tvm_codl.plan.plan import Placement
from tvm_codl.relay.pipeline import extract


def random_placements(graph: OpGraph, seed: int) -> dict[int, Placement]:
    """Mostly splits, often at the same place as the operator before."""
    rng = random.Random(seed)
    placements = {}
    share = rng.random()
    for operator in graph.operators:
        placements[operator.id] = Placement(rng.choice(["cpu", "gpu"]))
        legal = list(axes(operator, graph).values())
        if not legal or rng.random() < 0.2:
            continue
        axis = rng.choice(legal)
        share = share if rng.random() < 0.6 else rng.random()
        steps = (axis.extent - 1) // axis.granule
        at = axis.granule * min(steps, max(1, round(share * steps)))
        try:
            piece(operator, graph, axis.name, 0, at)
            piece(operator, graph, axis.name, at, axis.extent)
        except NoSplit:
            continue
        placements[operator.id] = Placement("split", axis.name, at)
    return placements


@pytest.mark.parametrize("name", NETWORKS)
def test_random_plans_give_the_answer(name: str) -> None:
    mod = NETWORKS[name]()
    graph, _, prepared = extract(mod)
    plans = [plan_of(graph, other=Placement("gpu"))]
    plans += [plan_of(graph, random_placements(graph, seed)) for seed in range(2)]
    whole, *parts = run_together([mod, *(partitioned(prepared, plan) for plan in plans)], random_inputs(mod))
    for plan, outputs in zip(plans, parts, strict=True):
        assert_same(outputs, whole, f"{name} under {[(p.name, p.placement) for p in plan.operators]}")
