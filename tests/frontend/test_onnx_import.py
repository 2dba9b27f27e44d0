"""Our converters of ONNX operators give Relay that computes what ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relay

from tests.frontend.onnx_models import random
from tvm_codl.frontend.onnx_import import from_onnx

GRID = random(1, 2, 2, 2, 3) / 3


def run(proto: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    module, _ = from_onnx(proto, {name: value.shape for name, value in inputs.items()}, proto.opset_import[0].version)
    with tvm.transform.PassContext(opt_level=1, config={"tir.disable_cse_tir": True}):
        executor = relay.create_executor("graph", mod=module, target="llvm")
        return executor.evaluate()(*inputs.values()).numpy()


def model(nodes: list[onnx.NodeProto], inputs: dict[str, np.ndarray], opset: int) -> onnx.ModelProto:
    taken = [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in inputs.items()]
    graph = helper.make_graph(nodes, "g", taken, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
    ],
)  # fmt: skip
def test_products(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    inputs = {"a": random(*a), "b": random(*b, seed=1)}
    proto = model([helper.make_node("MatMul", ["a", "b"], ["y"])], inputs, 13)
    np.testing.assert_allclose(run(proto, inputs), np.matmul(*inputs.values()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"align_corners": 1}, {"mode": "nearest"}])
def test_volumes_are_sampled(options: dict[str, Any]) -> None:
    inputs = {"x": random(1, 1, 3, 3, 3), "grid": GRID}
    kind = {"mode": "bilinear", **options}
    names = {"bilinear": "linear", "nearest": "nearest"}
    proto = model([helper.make_node("GridSample", list(inputs), ["y"], **kind)], inputs, 16)
    newer = model(
        [helper.make_node("GridSample", list(inputs), ["y"], **{**kind, "mode": names[kind["mode"]]})], inputs, 22
    )
    (want,) = ReferenceEvaluator(newer).run(None, inputs)
    np.testing.assert_allclose(run(proto, inputs), want, rtol=1e-4, atol=1e-5)


def test_the_smallest_are_found() -> None:
    inputs = {"x": random(3, 5)}
    count = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.array([2])))
    proto = model([count, helper.make_node("TopK", ["x", "k"], ["y", "at"], largest=0, axis=0)], inputs, 13)
    np.testing.assert_array_equal(run(proto, inputs), np.sort(inputs["x"], axis=0)[:2])


@pytest.mark.parametrize("place", [0, 1, 2, -1, -2])
def test_a_tensor_is_inserted_before_its_place(place: int) -> None:
    """The place behind all is the end (which ONNX's reference evaluator takes for the beginning)."""
    inputs = {name: np.full(2, number, np.float32) for number, name in enumerate("abc")}
    constants = {"place": place, **{f"at{i}": i for i in range(3)}}
    held = {name: numpy_helper.from_array(np.array(value)) for name, value in constants.items()}
    nodes = [helper.make_node("Constant", [], [name], value=value) for name, value in held.items()]
    nodes += [
        helper.make_node("SequenceConstruct", ["a", "b"], ["two"]),
        helper.make_node("SequenceInsert", ["two", "c", "place"], ["three"]),
        *(helper.make_node("SequenceAt", ["three", f"at{i}"], [f"part{i}"]) for i in range(3)),
        helper.make_node("Concat", [f"part{i}" for i in range(3)], ["y"], axis=0),
    ]
    parts = [inputs["a"], inputs["b"]]
    parts.insert(place, inputs["c"])
    np.testing.assert_array_equal(run(model(nodes, inputs, 13), inputs), np.concatenate(parts))
