from __future__ import annotations

import numpy as np

from tests.unit.cost.latency import network, pieces
from tests.unit.plan.networks import Network
from tvm_codl.cost.features import NAMES, features
from tvm_codl.records.workload import Workload


def test_one_finite_column_a_name() -> None:
    graph = network()
    rows = features([*pieces(graph, 0), Workload.of(graph.operators[3], graph)])
    assert rows.shape[1] == len(NAMES) == len(set(NAMES))
    assert np.isfinite(rows).all()
    assert features([]).shape == (0, len(NAMES))


def test_operators_that_compute_nothing_have_finite_features() -> None:
    made = Network(1, 8, 8, 3)
    made.opaque(0)
    graph = made.graph()
    assert np.isfinite(features([Workload.of(graph.operators[0], graph)])).all()


def test_values() -> None:
    made = Network(1, 16, 16, 32)
    made.conv(0, 40)
    graph = made.graph()
    operator = graph.operators[0]
    whole, half = features([Workload.of(operator, graph), Workload.of(operator, graph, "channels", 0, 20)])
    named = dict(zip(NAMES, half, strict=True))
    assert named["log_out_c"] == np.log2(20) and named["log_in_c"] == 5
    assert named["fill_out_c_8"] == 20 / 24 and named["fill_out_c_16"] == 20 / 32 and named["fill_out_c_4"] == 1
    assert named["log_share"] == named["log_flops_share"] == -1
    assert named["log_padded_share_16"] == np.log2(32 / 48)
    assert named["kind_conv2d"] == named["axis_channels"] == 1 and named["axis_height"] == 0
    assert dict(zip(NAMES, whole, strict=True))["log_share"] == 0
