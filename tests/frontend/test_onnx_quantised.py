"""Operators on quantised tensors, written as dequantise, operator, quantise: onnxruntime gives the same for both, but for roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_codl.frontend.onnx_quantised import expand_quantised
from tvm_codl.frontend.onnx_types import infer_types

S, T, Z = np.float32(0.0517), np.float32(0.0293), np.uint8(120)  # no ratio of small numbers: halves would be many
SCHEME = (S, Z)
PLAIN = {"Conv", "MatMul", "Add", "Gemm", "Mul", "AveragePool", "GlobalAveragePool", "Concat", "LeakyRelu", "Sigmoid",
         "Softmax", "Where", "QuantizeLinear", "DequantizeLinear", "Constant"}  # fmt: skip


def values(*shape: int, dtype: str = "uint8", seed: int = 3) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def model(op: str, arguments: list[Any], **attributes: Any) -> onnx.ModelProto:
    """One operator; all its inputs but ``x``, the first tensor of uint8, are initializers."""
    place = next(i for i, a in enumerate(arguments) if isinstance(a, np.ndarray) and a.dtype == np.uint8)
    names = ["" if a is None else "x" if i == place else f"a{i}" for i, a in enumerate(arguments)]
    weights = [
        numpy_helper.from_array(np.asarray(a), n)
        for n, a in zip(names, arguments, strict=True)
        if a is not None and n != "x"
    ]
    domain = "" if op in ("QLinearConv", "QLinearMatMul") else "com.microsoft"
    node = helper.make_node(op, names, ["y"], domain=domain, **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, arguments[place].shape)
    kind = TensorProto.FLOAT if op == "QGemm" and len(arguments) < 8 else TensorProto.UINT8
    y = helper.make_tensor_value_info("y", kind, None)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(helper.make_graph([node], op, [x], [y], weights), opset_imports=opsets)
    made.ir_version = 8
    return made


def answer(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


PICTURE = values(1, 4, 6, 5)
SCALES = np.linspace(0.001, 0.002, 6).astype(np.float32)
CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "conv": (
        "QLinearConv",
        [PICTURE, S, Z, values(6, 4, 3, 3, dtype="int8") // 4, SCALES, np.zeros(6, np.int8), T, Z,
         np.arange(6, dtype=np.int32) * 100],
        {"pads": [1, 1, 1, 1]},
    ),
    "conv_of_one_scale": (
        "QLinearConv",
        [PICTURE, S, Z, values(6, 4, 3, 3, dtype="int8") // 4, SCALES[0], np.int8(0), T, Z, np.arange(6, dtype=np.int32)],
        {},
    ),
    "matmul": ("QLinearMatMul", [values(3, 8), S, Z, values(8, 6, seed=4), np.float32(0.001), Z, T, Z], {}),
    "gemm": (
        "QGemm",
        [values(3, 8), S, Z, values(6, 8, dtype="int8") // 4, SCALES, np.zeros(6, np.int8), np.arange(6, dtype=np.int32), T, Z],
        {"transB": 1},
    ),
    "gemm_to_float": (
        "QGemm",
        [values(3, 8), S, Z, values(8, 6, dtype="int8") // 4, SCALES[0], np.int8(0), np.arange(6, dtype=np.int32)],
        {"alpha": 0.5},
    ),
    "add": ("QLinearAdd", [PICTURE, S, Z, values(1, 4, 6, 5, seed=4), T, np.uint8(7), np.float32(0.0611), Z], {}),
    "mul": ("QLinearMul", [PICTURE, S, Z, values(4, 1, 1, seed=4), T, np.uint8(7), np.float32(0.0611), Z], {}),
    "average_pool": ("QLinearAveragePool", [PICTURE, S, Z, T, Z], {"kernel_shape": [2, 2], "strides": [2, 1]}),
    "global_average_pool": ("QLinearGlobalAveragePool", [PICTURE, S, Z, T, Z], {}),
    "concat": ("QLinearConcat", [S, Z, PICTURE, T, np.uint8(3), values(1, 2, 6, 5), S, Z], {"axis": 1}),
    "leaky_relu": ("QLinearLeakyRelu", [PICTURE, S, Z, T, Z], {"alpha": 0.2}),
    "sigmoid": ("QLinearSigmoid", [PICTURE, S, Z, np.float32(1 / 256), np.uint8(0)], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_operators_on_floats_give_the_same(name: str) -> None:
    op, arguments, attributes = CASES[name]
    proto = model(op, arguments, **attributes)
    x = next(a for a in arguments if isinstance(a, np.ndarray) and a.dtype == np.uint8)
    wanted = answer(proto, x)
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    assert expand_quantised(other, infer_types(other, {}))
    assert {node.op_type for node in other.graph.node} <= PLAIN
    got = answer(other, x)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    if got.dtype == np.float32:
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    else:
        assert np.abs(got.astype(int) - wanted).max() <= 1
        assert np.mean(got != wanted) <= 0.02


def test_a_network_without_quantised_operators_stays() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    proto = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]))
    assert not expand_quantised(proto, infer_types(proto, {}))
