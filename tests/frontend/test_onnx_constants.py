"""Models that TVM's importer refuses or reads wrong unless their constants stand where it looks for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontend.onnx_models import random, save
from tests.frontend.test_load import assert_right
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model

INT64_MAX = np.iinfo(np.int64).max
SHAPE = [1, 4, 5, 6]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def constant(name: str, value: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


def through(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    opset: int,
    as_nodes: bool,
    shape: Sequence[int] = SHAPE,
) -> None:
    """The model with its constants as initializers or as nodes gives onnxruntime's answer."""
    first = [constant(name, value) for name, value in weights.items()] if as_nodes else []
    held = {} if as_nodes else weights
    rank = ["a", "b", "c", "d", "e"]
    assert_right(load_model(str(save(path, [*first, *nodes], shape, rank[: len(shape)], held, opset))))


@pytest.mark.parametrize("as_nodes", [False, True])
@pytest.mark.parametrize(
    ("operator", "opset", "axes"),
    [("ReduceSum", 13, (2, 3)), ("ReduceMean", 18, (-1, 1)), ("ReduceMax", 18, (2,)), ("ReduceL2", 18, (2, 3))],
)
def test_reductions_over_axes_that_are_an_input(
    tmp_path: Path, operator: str, opset: int, axes: tuple[int, ...], as_nodes: bool
) -> None:
    nodes = [helper.make_node(operator, ["x", "axes"], ["s"], keepdims=1), helper.make_node("Mul", ["x", "s"], ["y"])]
    through(tmp_path / "r.onnx", nodes, {"axes": ints(*axes)}, opset, as_nodes)


def test_axes_that_come_through_other_nodes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["two"], ["cast"], to=onnx.TensorProto.INT64),
        helper.make_node("Concat", ["cast", "three"], ["both"], axis=0),
        helper.make_node("Identity", ["both"], ["axes"]),
        helper.make_node("ReduceSum", ["x", "axes"], ["s"], keepdims=1),
        helper.make_node("Mul", ["x", "s"], ["y"]),
    ]
    through(tmp_path / "r.onnx", nodes, {"two": np.array([2], np.int32), "three": ints(3)}, 13, as_nodes=False)


def test_axes_that_are_computed_are_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
        helper.make_node("Cast", ["largest"], ["axes"], to=onnx.TensorProto.INT64),
        helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="sum"),
    ]
    with pytest.raises(UserError) as raised:
        through(tmp_path / "r.onnx", nodes, {}, 13, as_nodes=False)
    assert "'sum'" in raised.value.evidence and "'axes'" in raised.value.evidence


def test_axes_that_are_computed_of_constants_are_constant(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["one", "one"], ["axes"]),
        helper.make_node("ReduceSum", ["x", "axes"], ["s"]),
        helper.make_node("Mul", ["x", "s"], ["y"]),
    ]
    through(tmp_path / "r.onnx", nodes, {"one": ints(1)}, 13, as_nodes=False)


@pytest.mark.parametrize("idle", [0, 1])
def test_a_reduction_over_no_axes(tmp_path: Path, idle: int) -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["s"], keepdims=1, noop_with_empty_axes=idle)
    nodes = [node, helper.make_node("Add", ["x", "s"], ["y"])]
    through(tmp_path / "r.onnx", nodes, {"axes": ints()}, 13, as_nodes=False)


@pytest.mark.parametrize("as_nodes", [False, True])
@pytest.mark.parametrize("axes", [(2, 3), (-2, -1), (-1, -2), (2, -1)])
def test_unsqueeze_with_several_axes(tmp_path: Path, axes: tuple[int, ...], as_nodes: bool) -> None:
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Unsqueeze", ["f", "axes"], ["u"]),
        helper.make_node("Mul", ["x", "u"], ["y"]),
    ]
    through(tmp_path / "u.onnx", nodes, {"axes": ints(*axes)}, 13, as_nodes)


def test_unsqueeze_with_axes_as_an_attribute(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Unsqueeze", ["f"], ["u"], axes=[-2, -1]),
        helper.make_node("Mul", ["x", "u"], ["y"]),
    ]
    through(tmp_path / "u.onnx", nodes, {}, 11, as_nodes=False)


@pytest.mark.parametrize("as_nodes", [False, True])
def test_split_sizes_and_slice_bounds(tmp_path: Path, as_nodes: bool) -> None:
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        helper.make_node("Concat", ["b", "a"], ["c"], axis=1),
        helper.make_node("Slice", ["c", "from", "to", "axis"], ["y"]),
    ]
    weights = {"sizes": ints(1, 3), "from": ints(1), "to": ints(INT64_MAX), "axis": ints(2)}
    through(tmp_path / "s.onnx", nodes, weights, 13, as_nodes)


def test_constants_of_plain_numbers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["shape"], value_ints=[1, -1]),
        helper.make_node("Constant", [], ["factor"], value_float=2.5),
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Mul", ["r", "factor"], ["y"]),
    ]
    assert_right(load_model(str(save(tmp_path / "c.onnx", nodes, SHAPE, ["a", "b"], opset=13))))


def resize(scales: Sequence[float], opset: int = 13, **attributes: object) -> tuple[list[onnx.NodeProto], dict]:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear", **attributes)
    return [node], {"scales": np.array(scales, np.float32)}


@pytest.mark.parametrize("as_nodes", [False, True])
def test_a_scale_that_gives_whole_sizes_is_right(tmp_path: Path, as_nodes: bool) -> None:
    nodes, weights = resize([1, 1, 1.5, 0.5])
    through(tmp_path / "r.onnx", nodes, weights, 13, as_nodes, [1, 4, 4, 6])


@pytest.mark.parametrize("as_nodes", [False, True])
def test_a_scale_that_gives_no_whole_sizes_is_refused_where_it_matters(tmp_path: Path, as_nodes: bool) -> None:
    nodes, weights = resize([1, 1, 1.5, 1.5])
    with pytest.raises(UserError) as raised:
        through(tmp_path / "r.onnx", nodes, weights, 13, as_nodes, [1, 4, 7, 7])
    assert "[1, 4, 7, 7] times [1.0, 1.0, 1.5, 1.5]" in raised.value.evidence
    # ONNX stretches by the scales here too, onnxruntime by the whole sizes.
    nodes, weights = resize([1, 1, 1.5, 1.5], coordinate_transformation_mode="align_corners")
    with pytest.raises(UserError, match="no whole sizes"):
        through(tmp_path / "r.onnx", nodes, weights, 13, as_nodes, [1, 4, 7, 7])


def test_a_scale_is_checked_where_what_it_scales_is_an_output_too(tmp_path: Path) -> None:
    (node,), weights = resize([1, 1, 1.5, 1.5])
    node.input[0] = "level"
    nodes = [helper.make_node("Relu", ["x"], ["level"]), node]
    path = save(tmp_path / "r.onnx", nodes, [1, 4, 7, 7], ["a", "b", "c", "d"], weights)
    model = onnx.load(str(path))
    model.graph.output.append(helper.make_tensor_value_info("level", onnx.TensorProto.FLOAT, None))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match="no whole sizes"):
        load_model(str(path))


def test_a_weight_that_is_cut_short_is_told(tmp_path: Path) -> None:
    path = save(tmp_path / "w.onnx", [helper.make_node("Reshape", ["x", "shape"], ["y"])], SHAPE, ["a", "b"])
    model = onnx.load(str(path))
    model.graph.initializer.append(
        onnx.TensorProto(name="shape", data_type=onnx.TensorProto.INT64, dims=[2], raw_data=b"12345678")
    )
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match=r"cannot be imported"):
        load_model(str(path))


def test_antialiasing_is_refused(tmp_path: Path) -> None:
    nodes, weights = resize([1, 1, 0.5, 0.5], antialias=1)
    with pytest.raises(UserError, match="antialias"):
        through(tmp_path / "r.onnx", nodes, weights, 18, as_nodes=False, shape=[1, 4, 8, 8])


def test_double_precision_between(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["d"], to=onnx.TensorProto.DOUBLE),
        helper.make_node("Mul", ["d", "two"], ["e"]),
        helper.make_node("Add", ["e", "two"], ["f"]),
        helper.make_node("Cast", ["f"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    through(tmp_path / "d.onnx", nodes, {"two": np.array(2.0)}, 13, as_nodes=False)


def test_shapes_that_values_decide_are_refused_with_words(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["c"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["c", "two"], ["y"]),
    ]
    path = save(tmp_path / "n.onnx", nodes, SHAPE, ["a", "b"], {"two": np.array(2.0, np.float32)})
    with pytest.raises(UserError, match="known only as the network runs"):
        load_model(str(path))


def test_an_input_that_is_no_tensor_is_refused_with_words(tmp_path: Path) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [1]))
    graph = helper.make_graph(
        [helper.make_node("SequenceAt", ["x", "i"], ["y"])],
        "g",
        [helper.make_value_info("x", kind)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.array(0, np.int64), "i")],
    )
    path = tmp_path / "s.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString())
    with pytest.raises(UserError, match="'x' is no tensor"):
        load_model(str(path))


def test_a_scale_that_widens_a_transposed_convolution_stays_behind_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ConvTranspose", ["x", "t"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Mul", ["d", "s"], ["y"]),
    ]
    weights = {"t": random(4, 1, 2, 2), "s": random(1, 3, 1, 1, seed=1)}
    through(tmp_path / "t.onnx", nodes, weights, 13, as_nodes=False)
