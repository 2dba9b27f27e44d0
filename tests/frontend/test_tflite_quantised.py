"""Full-integer TFLite networks through the frontend, against LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.frontend.onnx_models import random
from tests.frontend.test_load import outputs
from tests.frontend.tflite_integers import full_integer
from tests.frontend.tflite_models import SAME, Model, needs_mediapipe
from tvm_codl.errors import UserError
from tvm_codl.frontend import zoo
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.measure.answers import TOLERANCE, answer_errors
from tvm_codl.relay.model import LoadedModel
from tvm_codl.relay.walk import in_order

RELU = schema.ActivationFunctionType.RELU


def assert_within_a_quantum(model: LoadedModel) -> None:
    inputs = model.sample_inputs(seed=3)
    wanted = reference_outputs(model, inputs)
    assert model.quanta and all(want.size == 1 or np.unique(want).size > 1 for want in wanted)
    assert answer_errors(outputs(model, inputs), wanted, model.quanta)[1] <= TOLERANCE


def products(model: LoadedModel) -> list[str]:
    """The types of what convolutions and dense layers add up."""
    calls = [expr for expr in in_order(model.module["main"].body) if getattr(expr, "op", None) is not None]
    return [str(call.attrs.out_dtype) for call in calls if str(call.op.name) in ("nn.conv2d", "nn.dense")]


def a_network(path: Path) -> Path:
    """With the operators of phones' networks."""
    model = Model()
    x = model.input(1, 12, 12, 3)
    conv = [model.constant(random(8, 3, 3, 3, seed=1)), model.constant(random(8, seed=2))]
    wide = model.add("CONV_2D", [x, *conv], [1, 6, 6, 8], schema.Conv2DOptionsT(SAME, 2, 2, RELU))
    each = [model.constant(random(1, 3, 3, 8, seed=3)), model.constant(random(8, seed=4))]
    y = model.add("DEPTHWISE_CONV_2D", [wide, *each], [1, 6, 6, 8], schema.DepthwiseConv2DOptionsT(SAME, 1, 1, 1))
    y = model.add("ADD", [wide, y], [1, 6, 6, 8], schema.AddOptionsT(RELU), version=2)
    low = model.add("MAX_POOL_2D", [y], [1, 3, 3, 8], schema.Pool2DOptionsT(SAME, 2, 2, 2, 2), version=2)
    mean = model.add("AVERAGE_POOL_2D", [y], [1, 3, 3, 8], schema.Pool2DOptionsT(SAME, 2, 2, 2, 2), version=2)
    y = model.add("CONCATENATION", [low, mean], [1, 3, 3, 16], schema.ConcatenationOptionsT(3), version=2)
    gate = model.add("LOGISTIC", [y], [1, 3, 3, 16], version=2)
    y = model.add("MUL", [y, gate], [1, 3, 3, 16], schema.MulOptionsT(), version=2)
    flat = model.constant(np.array([1, 144], np.int32))
    y = model.add("RESHAPE", [y, flat], [1, 144], schema.ReshapeOptionsT([1, 144]))
    dense = [model.constant(random(5, 144, seed=5)), model.constant(random(5, seed=6))]
    y = model.add("FULLY_CONNECTED", [y, *dense], [1, 5], schema.FullyConnectedOptionsT(), version=4)
    return model.save(path, y, model.add("SOFTMAX", [y], [1, 5], schema.SoftmaxOptionsT(1.0), version=2))


@pytest.mark.parametrize("integer_ends", [True, False])
def test_a_full_integer_network_multiplies_integers_and_gives_litert_s_answer(
    tmp_path: Path, integer_ends: bool
) -> None:
    path = a_network(tmp_path / "f.tflite")
    path = full_integer(path, tmp_path / "i.tflite", {"x": random(1, 12, 12, 3)}, integer_ends)
    loaded = load_model(str(path))
    assert loaded.inputs == (("x", (1, 12, 12, 3), "int8" if integer_ends else "float32"),)
    assert loaded.outputs == ("y0", "y1") and products(loaded) == ["int32"] * 3
    assert_within_a_quantum(loaded)


def test_weights_alone_and_16_bits_are_refused(tmp_path: Path) -> None:
    for name, dtype, why in (
        ("w", "float32", "of floats with quantised weights"),
        ("s", "int16", "of quantised int16"),
    ):
        model = Model()
        x = model.input(1, 4)
        model.graph.tensors[x].type = getattr(schema.TensorType, dtype.upper())
        weights = model.constant(np.ones((3, 4), np.int8))
        for tensor in (weights, x) if dtype == "int16" else (weights,):
            model.graph.tensors[tensor].quantization = schema.QuantizationParametersT(scale=[0.5], zeroPoint=[0])
        y = model.add("FULLY_CONNECTED", [x, weights], [1, 3], schema.FullyConnectedOptionsT(), version=4)
        model.graph.tensors[y].type = model.graph.tensors[x].type
        with pytest.raises(UserError, match="not supported: FULLY_CONNECTED") as error:
            load_model(str(model.save(tmp_path / f"{name}.tflite", y)))
        assert why in error.value.evidence


@needs_mediapipe
@pytest.mark.slow
@pytest.mark.parametrize("name", ["face_detection"])
def test_mediapipe_s_networks_as_full_integer(tmp_path: Path, name: str) -> None:
    plain = load_model(f"zoo:{name}")
    path = full_integer(zoo.entry(name).path(), tmp_path / "i.tflite", plain.sample_inputs())
    loaded = load_model(str(path))
    assert set(products(loaded)) == {"int32"}
    assert_within_a_quantum(loaded)
