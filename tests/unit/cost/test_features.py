from __future__ import annotations

import numpy as np

from tests.unit.cost.latency import network, pieces
from tests.unit.plan.networks import Network
from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.features import NAMES, Describer, joined
from tvm_codl.cost.table import Rows
from tvm_codl.kernels.gpu import usual
from tvm_codl.kernels.reuse import Tunings
from tvm_codl.records.pieces import Pieces
from tvm_codl.records.workload import Workload


def features(workloads: list[Workload]) -> Rows:
    """For a CPU of which nothing is known."""
    return Describer(Tunings(), "cpu", DeviceFacts())(workloads).rows


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


def test_a_vector_wider_than_the_channels_has_finite_features() -> None:
    made = Network(1, 1, 1, 8)
    made.conv(0, 2, kernel=1)
    graph = made.graph()
    describe = Describer(Tunings(), "gpu", DeviceFacts(gpu=usual("local")))
    described = describe([Workload.of(graph.operators[0], graph)])
    assert np.isfinite(described.rows).all() and (described.work >= 0).all()


def test_values() -> None:
    made = Network(1, 16, 16, 32)
    made.conv(0, 40)
    graph = made.graph()
    operator = graph.operators[0]
    whole, half = features([Workload.of(operator, graph), Workload.of(operator, graph, "channels", 0, 20)])
    named = dict(zip(NAMES, half, strict=True))
    assert named["log_out_c"] == np.log2(21) and named["log_in_c"] == np.log2(33)
    assert named["share"] == 0.5 and named["filtered"] == 4 and named["tile_depth"] == np.log2(32)
    # 20 channels are computed as two vectors of 16, the last one filled up with constant zeros.
    assert named["tile_lanes"] == 4 and named["packs"] == 0 and named["fill"] == 20 / 32
    assert named["kind_conv2d"] == named["axis_channels"] == 1 and named["axis_height"] == 0
    assert dict(zip(NAMES, whole, strict=True))["share"] == 1


def test_many_pieces_at_once_have_the_features_of_single_ones() -> None:
    graph = network()
    for processor in ("cpu", "gpu"):
        describe = Describer(Tunings(), processor, DeviceFacts(gpu=usual("mobile")))
        together, single = Pieces(graph), []
        for index, operator in enumerate(graph.operators):
            together.add(operator)
            single.append(Workload.of(operator, graph))
            for piece in pieces(graph, index):
                assert piece.cut is not None
                together.add(operator, piece.cut.axis, [piece.cut.lo], [piece.cut.hi])
                single.append(piece)
        assert np.array_equal(describe(together).rows, describe(single).rows)
        assert np.array_equal(describe(together).work, describe(single).work)
        assert np.array_equal(joined([describe(single), describe(together)]).rows[len(single) :], describe(single).rows)
