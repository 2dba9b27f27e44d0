"""What counts as the reference's answer where outputs are quantised."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_codl.graph.opgraph import Node, Operator, OpGraph, Ref, Tensor
from tvm_codl.measure.answers import TOLERANCE, answer_errors
from tvm_codl.measure.checked_plan import tensor_quanta
from tvm_codl.relay.quanta import OF_RANGE

WANT = np.linspace(-6.4, 6.35, 2000).astype(np.float32)


def moved(count: int, by: float) -> np.ndarray:
    got = WANT.copy()
    got[:count] += np.float32(by)
    return got


@pytest.mark.parametrize(
    ("count", "quanta", "right"),
    [(2000, 1, True), (2, 3, True), (3, 2, False), (2000, 2, False)],
)
def test_one_quantum_is_allowed_and_more_for_one_value_in_a_thousand(count: int, quanta: int, right: bool) -> None:
    absolute, relative = answer_errors([moved(count, quanta * 0.05)], [WANT], [0.05])
    assert (relative <= TOLERANCE) is right
    assert absolute == pytest.approx(quanta * 0.05, rel=1e-3)
    assert answer_errors([moved(count, quanta * 0.05)], [WANT])[1] > TOLERANCE  # of a network in float32


def test_where_only_what_is_before_is_quantised_the_range_has_255_quanta() -> None:
    quantum = float(np.ptp(WANT)) / 255
    assert answer_errors([moved(2000, 0.99 * quantum)], [WANT], [OF_RANGE])[1] == 0
    assert answer_errors([moved(2000, 1.1 * quantum)], [WANT], [OF_RANGE])[1] > TOLERANCE


def test_what_is_not_finite_is_wrong_in_a_quantised_network_too() -> None:
    assert answer_errors([np.full_like(WANT, np.nan)], [WANT], [0.05])[1] == np.inf


@pytest.mark.parametrize(("op", "wanted"), [("reinterpret", [OF_RANGE, 1.0, 0.0]), ("cast", [0.0, 0.0, 0.0])])
def test_tensors_of_eight_bits_are_quantised_where_something_is(op: str, wanted: list[float]) -> None:
    kinds = ("float32", "uint8", "int32")
    tensors = tuple(Tensor(i, kind, (2, 3), kind) for i, kind in enumerate(kinds))
    node = Node(op, {}, (Ref("input", 0),), ((2, 3),), "uint8")
    graph = OpGraph(tensors, (Operator(0, op, op, (0,), (1,), (node,), (), 0),), (0,), (1,))
    assert [tensor_quanta(graph)[tensor] for tensor in range(3)] == wanted
