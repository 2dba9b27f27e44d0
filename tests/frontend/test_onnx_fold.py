"""What is constant in a graph becomes a Constant; what is not, is random or large stays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.frontend.onnx_models import random
from tvm_codl.frontend.onnx_fold import MOST, fold_constants
from tvm_codl.frontend.onnx_types import infer_types


def graph_of(
    nodes: Sequence[onnx.NodeProto], weights: dict[str, np.ndarray], outputs: Sequence[str] = ("y",)
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def folded(proto: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    while fold_constants(copy, infer_types(copy, {"x": (2, 3, 4)})):
        pass
    return copy


def kinds(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node if node.op_type != "Constant"]


def check(proto: onnx.ModelProto, left: list[str]) -> None:
    other, x = folded(proto), {"x": random(2, 3, 4)}
    assert kinds(other) == left
    for got, want in zip(*(ReferenceEvaluator(each).run(None, x) for each in (other, proto)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_shape_that_is_computed_is_constant() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["all"]),
        helper.make_node("Shape", ["x"], ["last"], start=-1),
        helper.make_node("Gather", ["all", "zero"], ["first"]),
        helper.make_node("Concat", ["first", "minus", "last"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Size", ["r"], ["size"]),
        helper.make_node("CastLike", ["size", "x"], ["number"]),
        helper.make_node("Div", ["r", "number"], ["y"]),
    ]
    check(graph_of(nodes, {"zero": np.array([0]), "minus": np.array([-1])}), ["Reshape", "Div"])


def test_a_branch_with_a_constant_condition_is_taken() -> None:
    """Twice, and both branches name their values alike."""

    def branch(op: str) -> onnx.GraphProto:
        inner = [helper.make_node(op, ["x"], ["inner"]), helper.make_node("Neg", ["inner"], ["result"])]
        return helper.make_graph(inner, op, [], [helper.make_tensor_value_info("result", TensorProto.FLOAT, None)])

    nodes = [
        helper.make_node("If", ["yes"], ["a"], then_branch=branch("Abs"), else_branch=branch("Relu")),
        helper.make_node("If", ["no"], ["b"], then_branch=branch("Abs"), else_branch=branch("Relu")),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    proto = graph_of(nodes, {"yes": np.array(True), "no": np.array(False)})
    check(proto, ["Abs", "Neg", "Identity", "Relu", "Neg", "Identity", "Add"])


def test_a_loop_over_constants_is_run() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "i"], ["next"]), helper.make_node("Identity", ["on"], ["still"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.INT64, []),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.INT64, []),
        ],
    )
    nodes = [
        helper.make_node("Loop", ["count", "yes", "start"], ["sum"], body=body),
        helper.make_node("Cast", ["sum"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "number"], ["y"]),
    ]
    weights = {"count": np.array(5), "yes": np.array(True), "start": np.array(0)}
    check(graph_of(nodes, weights), ["Mul"])


def test_a_loop_that_stacks_stays() -> None:
    """ONNX's reference evaluator gives its stack of n numbers the shape (n, 1)."""
    kinds_of = {"i": TensorProto.INT64, "on": TensorProto.BOOL, "still": TensorProto.BOOL, "each": TensorProto.INT64}
    values = {name: helper.make_tensor_value_info(name, kind, []) for name, kind in kinds_of.items()}
    nodes = [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Neg", ["i"], ["each"])]
    body = helper.make_graph(nodes, "body", [values["i"], values["on"]], [values["still"], values["each"]])
    loop = helper.make_node("Loop", ["count", "yes"], ["y"], body=body)
    proto = graph_of([loop], {"count": np.array(5), "yes": np.array(True)})
    assert kinds(folded(proto)) == ["Loop"]


def test_random_quantised_and_large_constants_stay() -> None:
    nodes = [
        helper.make_node("RandomUniformLike", ["w"], ["noise"]),
        helper.make_node("QuantizeLinear", ["w", "scale"], ["q"]),
        helper.make_node("ConstantOfShape", ["many"], ["zeros"]),
        helper.make_node("Add", ["big", "one"], ["sum"]),
    ]
    weights = {
        "w": random(2), "scale": np.array(0.1, np.float32), "many": np.array([MOST + 1]), "one": np.array(1, np.float32),
        "big": random(MOST + 1),
    }  # fmt: skip
    proto = graph_of(nodes, weights, ["noise", "q", "zeros", "sum"])
    assert kinds(folded(proto)) == [node.op_type for node in nodes]


def test_types_are_known_beside_large_weights() -> None:
    """Which inference sees as inputs: a model may then be larger than 2 GB."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    types = infer_types(graph_of(nodes, {"w": random(4, MOST)}), {"x": (2, 3, 4)})
    assert [d.dim_value for d in types["y"].tensor_type.shape.dim] == [2, 3, MOST]
    assert [d.dim_value for d in types["w"].tensor_type.shape.dim] == [4, MOST]
