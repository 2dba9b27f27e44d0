"""Networks with nothing to compute, of numbers without axes, and of functions that OpenCL names otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from tvm_codl.build.library import build
from tvm_codl.frontend.load import load_model
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.relay.pipeline import partition, prepare
from tvm_codl.runtime.comodule import CoModule

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
_MASK = numpy_helper.from_array(np.ones((2, 3), bool))
_NUMBER = numpy_helper.from_array(np.array(2.5, np.float32))

#: Nodes, the input's shape, the output's type, and the answer.
NETWORKS: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], int, Any]] = {
    "identity": ([helper.make_node("Identity", ["x"], ["y"])], (2, 3), FLOAT, lambda x: x),
    "a cast that folds away": ([helper.make_node("Cast", ["x"], ["y"], to=FLOAT)], (2, 3), FLOAT, lambda x: x),
    "a number in": ([helper.make_node("Neg", ["x"], ["y"])], (), FLOAT, lambda x: -x),
    "a number out": ([helper.make_node("ReduceMax", ["x"], ["y"], keepdims=0)], (2, 3), FLOAT, np.max),
    "a constant number": ([helper.make_node("Constant", [], ["y"], value=_NUMBER)], (2,), FLOAT, lambda x: np.float32(2.5)),
    "a constant mask": ([helper.make_node("Constant", [], ["y"], value=_MASK)], (2,), BOOL, lambda x: np.ones((2, 3), bool)),
    "acos": ([helper.make_node("Acos", ["x"], ["y"])], (2, 3), FLOAT, np.arccos),
    "atanh": ([helper.make_node("Atanh", ["x"], ["y"])], (2, 3), FLOAT, np.arctanh),
    "round to even": ([helper.make_node("Round", ["x"], ["y"])], (6,), FLOAT, np.round),
}  # fmt: skip


@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize("on", ["cpu", "gpu"])
@pytest.mark.parametrize("name", NETWORKS)
def test_small_networks(name: str, on: Literal["cpu", "gpu"], tmp_path: Path) -> None:
    nodes, shape, kind, answer = NETWORKS[name]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    network = prepare(load_model(str(path)))
    cpu = cpu_target()
    library = build(partition(network, uniform_plan(network.graph, on)), cpu, gpu_target(cpu), {}, ("y",))
    module = CoModule(tvm.runtime.load_module(str(library.export(tmp_path / "m.so"))), tvm.cpu())
    x = np.array([0.5, -0.5, 0.25, -0.75, 0.125, 0.0], np.float32)
    x = x[: int(np.prod(shape))].reshape(shape)
    if "even" in name:
        x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 3.5], np.float32)
    (got,) = module.run({"x": x})
    want = np.asarray(answer(x))
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
