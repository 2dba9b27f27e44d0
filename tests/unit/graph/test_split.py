"""Composition of split rules along fused operators."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.graph.graphs import POOL, conv2d, node, single, total_flops
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.graph.slab import Slab
from tvm_codl.graph.split import Axis, NoSplit, Piece, axes, piece, whole


def strided(piece: Piece, op: str) -> list[int]:
    """The single axis and range of a piece's first node of that operator."""
    attrs = next(item.attrs for item in piece.operator.body if item.op == op)
    return [attrs["axes"][0], attrs["begin"][0], attrs["end"][0]]


def test_axes_of_a_convolution() -> None:
    operator, graph = conv2d(8, 4, 6, 3, padding=[1, 0, 1, 0])
    assert axes(operator, graph) == {
        "height": Axis("height", 1, 8, 1),
        "channels": Axis("channels", 3, 6, 1),
    }


def test_axes_of_a_grouped_convolution_step_by_groups() -> None:
    operator, graph = conv2d(8, 4, 6, 3, groups=2)
    assert axes(operator, graph)["channels"].granule == 3


@given(
    rows=st.integers(4, 20),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    top=st.integers(0, 2),
    bottom=st.integers(0, 2),
)
def test_rows_of_a_convolution(rows: int, kernel: int, stride: int, dilation: int, top: int, bottom: int) -> None:
    """Every cut: the pieces' windows are the whole's, padding is left at the true borders only."""
    reach = (kernel - 1) * dilation + 1
    assume(rows + top + bottom >= reach)
    operator, graph = conv2d(
        rows, 2, 4, kernel, strides=[stride, 1], dilation=[dilation, 1], padding=[top, 0, bottom, 0]
    )
    axis = axes(operator, graph).get("height")
    assume(axis is not None)
    assert axis is not None
    for at in range(1, axis.extent):
        for lo, hi in ((0, at), (at, axis.extent)):
            part = piece(operator, graph, "height", lo, hi)
            need = part.inputs[0] or Slab(1, 0, rows)
            pads = part.operator.body[0].attrs["padding"]
            assert 0 <= need.lo < need.hi <= rows
            assert (need.extent + pads[0] + pads[2] - reach) // stride + 1 == hi - lo
            assert need.lo - pads[0] == lo * stride - top, "the first window starts where it did"
            assert pads[0] == 0 or need.lo == 0
            assert pads[2] == 0 or need.hi == rows
            assert (pads[1], pads[3]) == (0, 0)
            assert part.output_shape == (1, hi - lo, 6, 4)
            assert part.operator.flops == total_flops(part.operator, list(part.feed_shapes))


def test_channels_of_a_convolution_slice_weights_and_bias() -> None:
    operator, graph = conv2d(8, 4, 6, 3)
    part = piece(operator, graph, "channels", 2, 6)
    assert part.inputs == (None,)
    assert part.const_parts == (Slab(3, 2, 6), Slab(0, 2, 6))
    assert [const.shape for const in part.operator.consts] == [(3, 1, 4, 4), (4,)]
    assert part.operator.body[0].attrs["channels"] == 4


def test_groups_of_a_convolution() -> None:
    operator, graph = conv2d(8, 4, 6, 3, groups=2)
    part = piece(operator, graph, "channels", 3, 6)
    assert part.inputs == (Slab(3, 2, 4),)
    assert part.operator.body[0].attrs["groups"] == 1
    with pytest.raises(NoSplit, match="between groups of 3"):
        piece(operator, graph, "channels", 2, 6)


def test_one_channel_of_a_depthwise_convolution_is_a_plain_one() -> None:
    operator, graph = conv2d(8, 4, 4, 3, groups=4, kernel_layout="HWOI")
    part = piece(operator, graph, "channels", 3, 4)
    assert part.inputs == (Slab(3, 3, 4),)
    assert part.const_parts[0] == Slab(2, 3, 4)
    assert part.operator.body[0].attrs["kernel_layout"] == "HWIO"


def residual() -> tuple[Operator, OpGraph]:
    attrs = conv2d(8, 4, 4, 3, padding=[1, 0, 1, 0])[0].body[0].attrs
    shape = (1, 8, 6, 4)
    return single([shape], [(3, 1, 4, 4)], node("nn.conv2d", attrs, "i0 c0", shape), node("add", {}, "i0 n0", shape))


def test_input_read_at_two_places_is_fed_twice() -> None:
    operator, graph = residual()
    part = piece(operator, graph, "height", 2, 5)
    assert part.operator.inputs == (0, 0)
    assert part.feeds == (Slab(1, 1, 6), Slab(1, 2, 5))
    assert part.feed_shapes == ((1, 5, 6, 4), (1, 3, 6, 4))
    assert part.inputs == (Slab(1, 1, 6),), "for the original operator, the hull"


def test_value_used_at_two_places_is_computed_once() -> None:
    shape = (1, 8, 6, 4)
    pool = {**POOL, "pool_size": [3, 1], "padding": [1, 0, 1, 0]}
    operator, graph = single(
        [shape],
        [],
        node("nn.relu", {}, "i0", shape),
        node("nn.max_pool2d", pool, "n0", shape),
        node("subtract", {}, "n0 n1", shape),
    )
    part = piece(operator, graph, "height", 2, 5)
    assert part.inputs == (Slab(1, 1, 6),)
    assert [item.op for item in part.operator.body] == ["nn.relu", "nn.max_pool2d", "strided_slice", "subtract"]
    assert strided(part, "strided_slice") == [1, 1, 4]


def test_concat_input_that_is_not_touched() -> None:
    operator, graph = single(
        [(1, 4, 6, 2), (1, 4, 6, 3), (1, 4, 6, 4)],
        [],
        node("nn.relu", {}, "i0", (1, 4, 6, 2)),
        node("concatenate", {"axis": -1}, "n0 i1 i2", (1, 4, 6, 9)),
    )
    part = piece(operator, graph, "axis3", 3, 9)
    first, second, third = part.inputs
    assert first is not None and first.empty
    assert (second, third) == (Slab(3, 1, 3), None)
    assert part.operator.inputs == (1, 2)
    assert [item.op for item in part.operator.body] == ["concatenate"]


def test_broadcast_argument_is_needed_whole() -> None:
    operator, graph = single(
        [(1, 8, 6, 4), (1, 1, 1, 4)],
        [],
        node("sigmoid", {}, "i1", (1, 1, 1, 4)),
        node("multiply", {}, "i0 n0", (1, 8, 6, 4)),
    )
    assert piece(operator, graph, "axis1", 0, 3).inputs == (Slab(1, 0, 3), None)
    assert piece(operator, graph, "axis3", 0, 3).inputs == (Slab(3, 0, 3), Slab(3, 0, 3))


def test_axis_that_would_compute_the_anchor_twice_is_refused() -> None:
    """Rows of the sum do not cut the product: it is broadcast over them."""
    operator, graph = single(
        [(1, 8), (5, 3)],
        [(3, 8)],
        node("nn.dense", {"units": 3}, "i0 c0", (1, 3)),
        node("add", {}, "n0 i1", (5, 3)),
    )
    assert set(axes(operator, graph)) == {"columns"}


def test_resize_is_cropped() -> None:
    attrs = {
        "size": [16, 12],
        "layout": "NHWC",
        "method": "linear",
        "coordinate_transformation_mode": "half_pixel",
        "rounding_method": "",
    }
    operator, graph = single([(1, 8, 6, 2)], [], node("image.resize2d", attrs, "i0", (1, 16, 12, 2)))
    part = piece(operator, graph, "height", 5, 9)
    assert part.inputs == (Slab(1, 1, 6),)
    assert part.operator.body[0].attrs["size"] == [10, 12]
    assert strided(part, "strided_slice") == [1, 3, 7]


def test_operator_without_a_rule_and_multiple_outputs_have_no_axes() -> None:
    operator, graph = single([(4, 6)], [], node("cumsum", {"axis": 1}, "i0", (4, 6)))
    assert axes(operator, graph) == {}
    operator, graph = single([(4, 6)], [], node("split", {"axis": 1}, "i0", (4, 3), (4, 3)))
    assert axes(operator, graph) == {}


def test_attributes_that_no_rule_can_change_are_not_split() -> None:
    """Each part would compute the whole: its shape is in TVM's own form."""
    for attrs, expected in (({"shape": [4, 6]}, {"axis0", "axis1"}), ({"tvm_json": "{}"}, set())):
        operator, graph = single([(4, 6)], [], node("broadcast_to", attrs, "i0", (4, 6)))
        assert set(axes(operator, graph)) == expected


def test_axes_and_places_that_do_not_exist() -> None:
    operator, graph = conv2d(8, 4, 6, 3)
    with pytest.raises(NoSplit, match="no axis 'depth'"):
        piece(operator, graph, "depth", 0, 1)
    for lo, hi in ((0, 0), (3, 2), (-1, 2), (2, 99)):
        with pytest.raises(NoSplit):
            piece(operator, graph, "height", lo, hi)


def test_width_and_single_batch_are_not_offered() -> None:
    operator, graph = conv2d(8, 4, 6, 3)
    assert not {"width", "batch"} & set(axes(operator, graph))


def test_layout_of_elementwise_operators_is_their_neighbours() -> None:
    operator, graph = conv2d(8, 4, 6, 3)
    shape = graph.tensors[1].shape
    tensors = (*graph.tensors, msgspec.structs.replace(graph.tensors[1], id=2, name="sum"))
    add = Operator(1, "add_1", "add", (1, 1), (2,), (node("add", {}, "i0 i1", shape),), (), 0)
    graph = OpGraph(tensors, (operator, add), (0,), (2,))
    assert set(axes(add, graph)) == {"height", "channels"}


def test_whole_is_the_operator_itself() -> None:
    operator, graph = conv2d(8, 4, 6, 3)
    part = whole(operator, graph)
    assert part.operator is operator
    assert (part.output, part.inputs, part.feed_shapes) == (None, (None,), ((1, 8, 6, 4),))


def test_graphs_and_pieces_are_json() -> None:
    operator, graph = residual()
    assert msgspec.json.decode(msgspec.json.encode(graph), type=OpGraph) == graph
    part = piece(operator, graph, "height", 2, 5)
    assert msgspec.json.decode(msgspec.json.encode(part), type=Piece) == part
