"""What rewrites ONNX nodes keeps their meaning: ONNX's reference evaluator gives the same before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.frontend.onnx_models import random
from tvm_codl.frontend.onnx_functions import expand_functions, known_operators
from tvm_codl.frontend.onnx_repairs import repair_nodes
from tvm_codl.frontend.onnx_types import infer_types


def model(op: str, inputs: dict[str, np.ndarray], opset: int = 23, **attributes: Any) -> onnx.ModelProto:
    """One operator, its inputs named."""
    taken = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), ["y"], **attributes)],
        "g",
        taken,
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def rewritten(proto: onnx.ModelProto, rewrite: Callable[[onnx.ModelProto, Any], object]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    rewrite(copy, infer_types(copy, {}))
    return copy


FUNCTIONS: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any]]] = {
    "attention": ("Attention", {n: random(1, 2, 4, 8, seed=i) for i, n in enumerate("qkv")}, {"scale": 0.3}),
    "gelu_tanh": ("Gelu", {"x": random(3, 4)}, {"approximate": "tanh"}),
    "gelu": ("Gelu", {"x": random(3, 4)}, {}),
    "group_norm": (
        "GroupNormalization",
        {"x": random(2, 4, 3, 3), "scale": random(4), "bias": random(4)},
        {"num_groups": 2},
    ),
    "crop": ("CenterCropPad", {"x": random(6, 4), "shape": np.array([3, 8])}, {}),
    "window": ("HannWindow", {"n": np.array(9)}, {}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_computes_what_its_operator_does(name: str) -> None:
    op, inputs, attributes = FUNCTIONS[name]
    proto = model(op, inputs, **attributes)
    other = rewritten(proto, expand_functions)
    assert op not in {node.op_type for node in other.graph.node}
    assert all(node.op_type in known_operators(23) for node in other.graph.node)
    (want,), (got,) = (ReferenceEvaluator(each).run(None, inputs) for each in (proto, other))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_operators_that_the_importer_knows_stay() -> None:
    proto = model("Softmax", {"x": random(2, 3)})
    assert not expand_functions(proto, infer_types(proto, {}))
    assert [node.op_type for node in proto.graph.node] == ["Softmax"]


@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 1)])
def test_same_padding_becomes_numbers(how: str, stride: int, dilation: int) -> None:
    inputs = {"x": random(1, 1, 7, 8), "w": random(1, 1, 4, 3)}
    proto = model("Conv", inputs, 13, auto_pad=how, strides=[stride] * 2, dilations=[dilation] * 2)
    other = rewritten(proto, repair_nodes)
    assert "auto_pad" not in {a.name for a in other.graph.node[0].attribute}
    shape = tuple(d.dim_value for d in infer_types(other, {})["y"].tensor_type.shape.dim)
    assert shape == (1, 1, -(-7 // stride), -(-8 // stride))
    pads = helper.get_attribute_value(next(a for a in other.graph.node[0].attribute if a.name == "pads"))
    for low, high in zip(pads[:2], pads[2:], strict=True):
        assert 0 <= (high - low if how == "SAME_UPPER" else low - high) <= 1


def test_a_triangle_and_a_conversion_keep_their_meaning() -> None:
    square = {"x": random(4, 4), "k": np.array([1])}
    upper = rewritten(model("Trilu", {"x": square["x"], "k": square["k"]}, 14, upper=0), repair_nodes)
    scalar = {name: tuple(v.tensor_type.shape.dim) for name, v in infer_types(upper, {}).items()}
    trilu = next(node for node in upper.graph.node if node.op_type == "Trilu")
    assert scalar[trilu.input[1]] == ()
    np.testing.assert_array_equal(ReferenceEvaluator(upper).run(None, square)[0], np.tril(square["x"], 1))
    doubles = {"x": random(3, 4).astype(np.float64)}
    halves = rewritten(model("Cast", doubles, 13, to=TensorProto.FLOAT16), repair_nodes)
    assert [node.op_type for node in halves.graph.node] == ["Cast", "Cast"]
    np.testing.assert_array_equal(
        ReferenceEvaluator(halves).run(None, doubles)[0], doubles["x"].astype(np.float32).astype(np.float16)
    )


ones = np.ones((2, 3, 4), np.float32)
#: Operator, inputs, attributes, and what of it TVM does not read.
REPAIRS: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any], str]] = {
    "dropout": ("Dropout", {"x": ones, "ratio": np.array(0.5, np.float32)}, {"seed": 3}, "seed"),
    "split": ("Split", {"x": random(2, 7)}, {"axis": 1, "num_outputs": 3}, "num_outputs"),
    "lp_pool": ("LpPool", {"x": random(1, 2, 6, 6)}, {"kernel_shape": [3, 2], "p": 3, "pads": [1, 0, 1, 1]}, "p"),
}
CONSTANTS: dict[str, tuple[str, dict[str, np.ndarray], dict[str, np.ndarray], dict[str, Any]]] = {
    "pad": ("Pad", {"x": random(2, 3, 4)}, {"pads": np.array([1, 2, 0, 3]), "v": np.float32(1.5), "axes": np.array([0, -1])}, {}),
    "resize_axes": ("Resize", {"x": random(1, 1, 3, 4)}, {"": np.zeros(0), "_": np.zeros(0), "sizes": np.array([8, 6])}, {"axes": [3, 2]}),
    "resize_not_larger": (
        "Resize", {"x": random(1, 1, 2, 4)}, {"": np.zeros(0), "_": np.zeros(0), "sizes": np.array([7, 8])},
        {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPAIRS)
def test_a_repair_computes_what_its_operator_does(name: str) -> None:
    op, inputs, attributes, unread = REPAIRS[name]
    proto = model(op, inputs, 18, **attributes)
    if name == "split":
        proto.graph.node[0].output.extend(["y1", "y2"])
    other = rewritten(proto, repair_nodes)
    assert not any(a.name == unread for node in other.graph.node for a in node.attribute)
    for got, want in zip(*(ReferenceEvaluator(each).run(None, inputs) for each in (other, proto)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_repair_spreads_axes(name: str) -> None:
    """Over all axes of the operator, for which TVM's importer takes what it reads."""
    op, inputs, constants, attributes = CONSTANTS[name]
    proto = model(op, inputs, 19, **attributes)
    proto.graph.node[0].input.extend("" if n in ("", "_") else n for n in constants)
    held = {n: v for n, v in constants.items() if n not in ("", "_")}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in held.items())
    other = rewritten(proto, repair_nodes)
    made = next(node for node in other.graph.node if node.op_type == op)
    assert "axes" not in made.input and not any(a.name == "axes" for a in made.attribute)
    (want,), (got,) = (ReferenceEvaluator(each).run(None, inputs) for each in (proto, other))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_dropout_in_training_stays_and_one_that_drops_nothing_goes() -> None:
    def kinds(ratio: float) -> list[str]:
        values = {"ratio": np.array(ratio, np.float32), "training": np.array(True)}
        proto = model("Dropout", {"x": ones}, 13)
        proto.graph.node[0].input.extend(values)
        proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in values.items())
        return [node.op_type for node in rewritten(proto, repair_nodes).graph.node]

    assert kinds(0.5) == ["Dropout"]
    assert kinds(0.0) == ["Identity"]


def test_a_recurrent_network_with_its_batch_first_is_turned() -> None:
    inputs = {"x": random(3, 4, 2), "w": random(1, 5, 2), "r": random(1, 5, 5)}
    proto = model("RNN", inputs, 14, hidden_size=5, layout=1)
    other = rewritten(proto, repair_nodes)
    assert [node.op_type for node in other.graph.node] == ["Transpose", "RNN", "Transpose"]
    assert not any(a.name == "layout" for a in other.graph.node[1].attribute)
    shape = tuple(d.dim_value for d in infer_types(other, {})["y"].tensor_type.shape.dim)
    assert shape == (3, 4, 1, 5)


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize(
    ("what", "value"), [("sizes", [1, 1, 7, 3]), ("scales", [1, 1, 1.7, 0.55]), ("scales", [1, 1, 2, 3])]
)
def test_nearest_neighbours_are_onnxs(coordinates: str, rounding: str, what: str, value: list[float]) -> None:
    inputs = {"x": random(1, 1, 2, 5)}
    proto = model("Resize", inputs, 19, coordinate_transformation_mode=coordinates, nearest_mode=rounding)
    proto.graph.node[0].input.extend(["", "", what] if what == "sizes" else ["", what])
    kind = np.int64 if what == "sizes" else np.float32
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, kind), what))
    other = rewritten(proto, repair_nodes)
    plain = value == [1, 1, 2, 3] and (coordinates, rounding) in {
        ("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"),
        ("pytorch_half_pixel", "round_prefer_floor"), ("pytorch_half_pixel", "round_prefer_ceil"),
    }  # fmt: skip
    assert ("Resize" in {node.op_type for node in other.graph.node}) == plain
    (want,), (got,) = (ReferenceEvaluator(each).run(None, inputs) for each in (proto, other))
    np.testing.assert_array_equal(got, want)


def test_empty_parts_of_a_split_go() -> None:
    sizes = {"sizes": np.array([3, 0, 4])}
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b", "c"], axis=1),
        helper.make_node("Concat", ["c", "b", "a"], ["y"], axis=1),
    ]
    proto = model("Relu", {"x": random(2, 7)}, 13)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in sizes.items())
    other = rewritten(proto, repair_nodes)
    assert [len(node.input) for node in other.graph.node if node.op_type == "Concat"] == [2]
    x = {"x": random(2, 7)}
    (want,), (got,) = (ReferenceEvaluator(each).run(None, x) for each in (proto, other))
    np.testing.assert_array_equal(got, want)


def test_a_scale_of_one_element_has_no_axes() -> None:
    inputs = {"x": random(2, 3), "scale": np.array([0.1], np.float32), "zero": np.array([3], np.uint8)}
    other = rewritten(model("QuantizeLinear", inputs, 13), repair_nodes)
    types = infer_types(other, {})
    quantise = other.graph.node[-1]
    assert all(not types[name].tensor_type.shape.dim for name in quantise.input[1:])
    np.testing.assert_array_equal(
        ReferenceEvaluator(other).run(None, inputs)[0], np.round(inputs["x"] / np.float32(0.1)).clip(-3, 252) + 3
    )
