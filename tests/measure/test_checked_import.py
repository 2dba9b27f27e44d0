"""An importer's mistake is found before anything is measured, and its operator is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto, helper, numpy_helper
from tvm import relay

from tests.frontend.onnx_models import random
from tests.frontend.tflite_models import SAME, Model
from tvm_codl.errors import CheckFailed, UserError
from tvm_codl.frontend import tflite_import
from tvm_codl.frontend.load import load_model
from tvm_codl.measure import checked_import
from tvm_codl.measure.checked_import import check_import
from tvm_codl.measure.node_errors import node_errors

SHAPE = (1, 4, 8, 8)
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def nothing_checked_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path / "cache"))


def weights(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(RANDOM.standard_normal(shape).astype("float32"), name)


#: By operator: its node from "middle" to "behind" in a network of NCHW tensors, and its weights.
OPERATORS: dict[str, tuple[dict[str, Any], list[onnx.TensorProto]]] = {
    "Relu": ({}, []),
    "Sigmoid": ({}, []),
    "LeakyRelu": ({"alpha": 0.1}, []),
    "Softmax": ({"axis": 1}, []),
    "MaxPool": ({"kernel_shape": [2, 2]}, []),
    "AveragePool": ({"kernel_shape": [3, 3], "strides": [2, 2]}, []),
    "GlobalAveragePool": ({}, []),
    "Transpose": ({"perm": [0, 2, 3, 1]}, []),
    "Mul": ({}, [weights("scale", 4, 1, 1)]),
    "ConvTranspose": ({"kernel_shape": [2, 2], "strides": [2, 2]}, [weights("up", 4, 3, 2, 2)]),
}


def write(folder: Path, operator: str) -> Path:
    """A convolution, the operator, and a hyperbolic tangent."""
    attributes, extra = OPERATORS[operator]
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["middle"], name="first", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node(operator, ["middle", *(t.name for t in extra)], ["behind"], name="suspect", **attributes),
        helper.make_node("Tanh", ["behind"], ["y"], name="last"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", SHAPE), ("y", None))
    ]
    graph = helper.make_graph(nodes, operator, ends[:1], ends[1:], [weights("kernel", 4, 4, 3, 3), *extra])
    path = folder / f"{operator}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def mistaken(convert: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: convert(*args) * relay.const(1.02)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_mistake_of_the_importer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str) -> None:
    path = write(tmp_path, operator)
    right = relay.frontend.onnx._get_convert_map

    def wrong(opset: int) -> dict[str, Any]:
        known = right(opset)
        return {**known, operator: mistaken(known[operator])}

    monkeypatch.setattr(relay.frontend.onnx, "_get_convert_map", wrong)
    with pytest.raises(CheckFailed) as raised:
        check_import(load_model(str(path)))
    assert f"{operator} 'suspect'" in str(raised.value) and "--no-check" in str(raised.value)


#: By operator: the weights behind its input of 8 x 8 x 4, the size of its output, and its options.
TFLITE_OPERATORS: dict[str, tuple[list[np.ndarray], list[int], object]] = {
    "CONV_2D": ([random(4, 3, 3, 4), random(4)], [1, 8, 8, 4], schema.Conv2DOptionsT(SAME, 1, 1)),
    "DEPTHWISE_CONV_2D": ([random(1, 3, 3, 4), random(4)], [1, 8, 8, 4], schema.DepthwiseConv2DOptionsT(SAME, 1, 1, 1)),
    "FULLY_CONNECTED": ([random(5, 256), random(5)], [1, 5], schema.FullyConnectedOptionsT()),
    "PRELU": ([random(1, 1, 4)], [1, 8, 8, 4], None),
    "ADD": ([random(1, 1, 1, 4)], [1, 8, 8, 4], schema.AddOptionsT()),
    "LOGISTIC": ([], [1, 8, 8, 4], None),
    "HARD_SWISH": ([], [1, 8, 8, 4], None),
    "MAX_POOL_2D": ([], [1, 4, 4, 4], schema.Pool2DOptionsT(SAME, 2, 2, 2, 2)),
    "AVERAGE_POOL_2D": ([], [1, 4, 4, 4], schema.Pool2DOptionsT(SAME, 2, 2, 2, 2)),
    "RESIZE_BILINEAR": ([np.array([16, 16], np.int32)], [1, 16, 16, 4], schema.ResizeBilinearOptionsT()),
}


def write_tflite(folder: Path, operator: str) -> Path:
    """A square, the operator, and a hyperbolic tangent."""
    weights, shape, options = TFLITE_OPERATORS[operator]
    model = Model()
    middle = model.add("SQUARE", [model.input(1, 8, 8, 4)], [1, 8, 8, 4])
    behind = model.add(operator, [middle, *map(model.constant, weights)], shape, options)
    return model.save(folder / f"{operator}.tflite", model.add("TANH", [behind], shape))


@pytest.mark.parametrize("operator", TFLITE_OPERATORS)
def test_a_mistake_in_a_tflite_operator_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    path = write_tflite(tmp_path, operator)
    right = tflite_import._naming

    def wrong(name: str, convert: Callable[..., Any]) -> Callable[..., Any]:
        return right(name, mistaken(convert) if name == operator else convert)

    monkeypatch.setattr(tflite_import, "_naming", wrong)
    with pytest.raises(CheckFailed) as raised:
        check_import(load_model(str(path)))
    assert f"{operator} '1'" in str(raised.value) and "--no-check" in str(raised.value)


def test_every_operator_of_a_tflite_file_is_compared(tmp_path: Path) -> None:
    model = Model()
    x = model.input(1, 3, 4, 5)
    weights = model.constant(random(2, 2, 2, 5).astype(np.float16))
    weights = model.add("DEQUANTIZE", [weights], [2, 2, 2, 5], version=3)
    options = np.frombuffer(np.array([1, 2, 2], "<i4").tobytes(), np.uint8)
    inputs = [x, weights, model.constant(random(2))]
    larger = model.add("Convolution2DTransposeBias", inputs, [1, 6, 8, 2], options)
    flat = model.add("RESHAPE", [larger, model.constant(np.array([1, 96], np.int32))], [1, 96])
    loaded = load_model(str(model.save(tmp_path / "m.tflite", flat)))
    found = node_errors(loaded, loaded.sample_inputs())
    assert [(node.node, node.operator) for node in found] == [("1", "Convolution2DTransposeBias"), ("2", "RESHAPE")]
    assert all(node.max_rel_err < 1e-5 for node in found)


def test_what_was_right_is_not_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(str(write(tmp_path, "Relu")))
    lines: list[str] = []
    check_import(model, log=lines.append)
    assert len(lines) == 1
    assert all(node.max_rel_err < 1e-5 for node in node_errors(model, model.sample_inputs()))
    monkeypatch.setattr(checked_import, "host_outputs", None)
    check_import(model, log=lines.append)
    assert len(lines) == 1


def test_other_work_is_done_beside_the_check_but_not_where_there_is_nothing_to_check(tmp_path: Path) -> None:
    model = load_model(str(write(tmp_path, "Relu")))
    done: list[int] = []
    check_import(model, meanwhile=lambda: done.append(1))
    assert done == [1]
    check_import(model, meanwhile=lambda: done.append(2))
    assert done == [1]


def test_an_error_of_the_work_beside_the_check_is_raised(tmp_path: Path) -> None:
    def fail() -> None:
        raise UserError("it cannot be prepared", "it has no operators", "name another network")

    model = load_model(str(write(tmp_path, "Relu")))
    with pytest.raises(UserError, match="it cannot be prepared"):
        check_import(model, meanwhile=fail)
