"""Any operator with a split rule, cut at any legal place of any axis, gives the unsplit answer."""

from __future__ import annotations

import pytest
import tvm
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.relay.operator_cases import CASES
from tests.relay.oracle import assert_same, partitioned, plan_of, random_inputs, run_together
from tvm_codl.graph.split import NoSplit, axes, piece
from tvm_codl.plan.plan import Placement
from tvm_codl.relay.pipeline import extract

MOST = 3
"""Splits that one example builds; what an operator decomposes to may have many more."""


@pytest.mark.parametrize("name", CASES)
@settings(
    max_examples=examples(4),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
@given(st.data())
def test_split_gives_the_unsplit_answer(name: str, data: st.DataObject) -> None:
    mod = tvm.IRModule.from_expr(CASES[name](data.draw))
    graph, _, prepared = extract(mod)
    splits = []
    for operator in graph.operators:
        for axis in axes(operator, graph).values():
            at = axis.granule * data.draw(st.integers(1, (axis.extent - 1) // axis.granule))
            try:
                piece(operator, graph, axis.name, 0, at)
                piece(operator, graph, axis.name, at, axis.extent)
            except NoSplit:
                continue
            splits.append((operator.id, Placement("split", axis.name, at)))
    assume(splits)
    splits = data.draw(st.permutations(splits))[:MOST]
    modules = [partitioned(prepared, plan_of(graph, {id: placement})) for id, placement in splits]
    whole, *parts = run_together([mod, *modules], random_inputs(mod))
    for (id, placement), outputs in zip(splits, parts, strict=True):
        assert_same(outputs, whole, f"{graph.operators[id].name} {placement} of\n{mod}")
