"""Every operator with a split rule: many pieces at once equal each by itself."""

from __future__ import annotations

import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.relay.operator_cases import CASES
from tests.unit.graph.alike import check_alike
from tvm_codl.relay.pipeline import extract


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=examples(5), suppress_health_check=[*HealthCheck])
@given(st.data())
def test_many_pieces_are_each_by_itself(name: str, data: st.DataObject) -> None:
    graph, *_ = extract(tvm.IRModule.from_expr(CASES[name](data.draw)))
    for operator in graph.operators:
        check_alike(operator, graph, most=7)
