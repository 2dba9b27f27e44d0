"""The copy of a file that says where its nodes run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from msgspec import structs
from onnx import helper

from tests.frontend.onnx_models import random, save
from tvm_codl.errors import UsageError
from tvm_codl.frontend.load import load_model
from tvm_codl.measure.annotated_file import Annotated, annotate_file, check_annotatable
from tvm_codl.plan.plan import Placement, Plan, uniform_plan
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared


def convolution(path: Path) -> Path:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    return save(path, nodes, [1, 4, 8, 8], [1, 4, 4, 4], {"w": random(4, 4, 3, 3)})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(load_model(str(convolution(tmp_path_factory.mktemp("model") / "net.onnx"))))


def plan_of(prepared: Prepared) -> Plan:
    """The convolution split, the rest on the GPU."""
    plan = uniform_plan(prepared.graph, "gpu", "net", "phone")
    lines = [
        structs.replace(line, placement=Placement("split", "height", 3), cpu_ms=2.0, planned_ms=1.25, reason="why")
        if line.name == "conv2d_1"
        else line
        for line in plan.operators
    ]
    return structs.replace(plan, operators=tuple(lines), predicted_ms=3.5)


def said(entry: Any) -> dict[str, str]:
    return {each.key: each.value for each in entry.metadata_props}


def test_nodes_say_where_they_run_and_compute_what_they_did(prepared: Prepared, tmp_path: Path) -> None:
    output = tmp_path / "annotated.onnx"
    assert annotate_file(prepared, plan_of(prepared), output) == Annotated(3, 3)
    proto = onnx.load(output)
    onnx.checker.check_model(proto, full_check=True)
    conv, relu, pool = map(said, proto.graph.node)
    number = next(o.id for o in prepared.graph.operators if o.name == "conv2d_1")
    assert conv == relu
    assert conv == {
        "tvm_codl.placement": "height@3", "tvm_codl.operator": f"{number} conv2d_1", "tvm_codl.cpu_ms": "2",
        "tvm_codl.planned_ms": "1.25", "tvm_codl.reason": "why",
    }  # fmt: skip
    assert pool["tvm_codl.placement"] == "gpu" and pool["tvm_codl.operator"].endswith("max_pool2d_1")
    assert said(proto) == {"tvm_codl.device": "phone", "tvm_codl.predicted_ms": "3.5"}
    inputs = prepared.model.sample_inputs()
    before, after = (
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)
        for path in (prepared.model.path, output)
    )
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_new_plan_replaces_what_an_earlier_one_said(prepared: Prepared, tmp_path: Path) -> None:
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    annotate_file(prepared, plan_of(prepared), first)
    again = replace(prepared, model=replace(prepared.model, path=first))
    annotate_file(again, uniform_plan(prepared.graph, "cpu"), second)
    proto = onnx.load(second)
    assert [said(node)["tvm_codl.placement"] for node in proto.graph.node] == ["cpu"] * 3
    assert not proto.metadata_props and "tvm_codl.cpu_ms" not in said(proto.graph.node[0])


def test_weights_that_old_files_list_as_inputs_stay_weights(prepared: Prepared, tmp_path: Path) -> None:
    proto = onnx.load(prepared.model.path)
    proto.ir_version = 3
    proto.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [4, 4, 3, 3]))
    old, output = tmp_path / "old.onnx", tmp_path / "new.onnx"
    onnx.save(proto, old)
    annotate_file(prepare(load_model(str(old))), plan_of(prepared), output)
    assert [value.name for value in onnx.load(output).graph.input] == ["x"]
    onnx.checker.check_model(str(output))


def test_weights_in_other_files_stay_there(prepared: Prepared, tmp_path: Path) -> None:
    apart = tmp_path / "apart.onnx"
    onnx.save(
        onnx.load(prepared.model.path), apart, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    model = load_model(str(apart))
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError):
        check_annotatable(model, tmp_path / "other" / "out.onnx")
    output = tmp_path / "out.onnx"
    annotate_file(prepare(model), plan_of(prepared), output)
    onnx.checker.check_model(str(output))
    assert onnx.load(output, load_external_data=False).graph.initializer[0].external_data[0].value == "weights.bin"


def test_what_comes_from_no_onnx_file_and_the_file_itself_are_refused(prepared: Prepared, tmp_path: Path) -> None:
    tflite = tmp_path / "net.tflite"
    tflite.write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(32))
    for path in (None, tflite):
        with pytest.raises(UsageError):
            check_annotatable(SimpleNamespace(name="net", path=path), tmp_path / "out.onnx")  # type: ignore[arg-type]
    assert prepared.model.path is not None
    with pytest.raises(UsageError):
        check_annotatable(prepared.model, prepared.model.path)
