"""TFLite networks through the frontend, against LiteRT; and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.frontend.onnx_models import random
from tests.frontend.test_load import assert_right, operators, outputs
from tests.frontend.tflite_models import SAME, VALID, Model, needs_mediapipe
from tvm_codl.errors import UserError
from tvm_codl.frontend import zoo
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.frontend.tflite_file import read_tflite, write_tflite

RELU = schema.ActivationFunctionType.RELU


def test_float16_weights_become_float32_constants(tmp_path: Path) -> None:
    model = Model()
    x = model.input(1, 7, 6, 3, name="picture:0")
    weights, bias = (
        model.add("DEQUANTIZE", [model.constant(v.astype(np.float16))], v.shape, version=3)
        for v in (random(8, 3, 3, 3), random(8, seed=1))
    )
    y = model.add("CONV_2D", [x, weights, bias], [1, 4, 3, 8], schema.Conv2DOptionsT(SAME, 2, 2, RELU))
    loaded = load_model(str(model.save(tmp_path / "half.tflite", y)))
    assert loaded.inputs == (("picture:0", (1, 7, 6, 3), "float32"),)
    assert loaded.outputs == ("y0",)
    assert operators(loaded) == {"nn.conv2d": 1, "add": 1, "nn.relu": 1}  # neither casts nor transposes
    assert_right(loaded)


def test_every_shape_of_operator(tmp_path: Path) -> None:
    """Those of phones' networks, one behind the other, all of them outputs."""
    model = Model()
    x = model.input(1, 6, 8, 4)

    def resized(align: bool, half: bool) -> int:
        size = model.constant(np.array([12, 10], np.int32))
        return model.add("RESIZE_BILINEAR", [x, size], [1, 12, 10, 4], schema.ResizeBilinearOptionsT(align, half), 3)

    slopes = [model.constant(random(*shape, seed=2)) for shape in ((1, 1, 4), (6, 8, 4), (6, 8, 1))]
    found = [model.add("PRELU", [x, slope], [1, 6, 8, 4]) for slope in slopes]
    found += [resized(False, False), resized(False, True), resized(True, False)]
    depthwise = [model.constant(random(1, 3, 3, 8, seed=3)), model.constant(random(8, seed=4))]
    options = schema.DepthwiseConv2DOptionsT(SAME, 2, 2, 2, RELU)
    found.append(model.add("DEPTHWISE_CONV_2D", [x, *depthwise], [1, 3, 4, 8], options))
    found.append(model.add("AVERAGE_POOL_2D", [x], [1, 3, 4, 4], schema.Pool2DOptionsT(SAME, 2, 2, 3, 3)))
    found.append(model.add("MAX_POOL_2D", [x], [1, 2, 3, 4], schema.Pool2DOptionsT(VALID, 2, 2, 3, 3)))
    axes = model.constant(np.array([1, 2], np.int32))
    mean = model.add("MEAN", [x, axes], [1, 4], schema.ReducerOptionsT(False))
    dense = [model.constant(random(5, 4, seed=5)), model.constant(random(5, seed=6))]
    found.append(model.add("FULLY_CONNECTED", [mean, *dense], [1, 5], schema.FullyConnectedOptionsT()))
    found.append(model.add("SOFTMAX", [found[-1]], [1, 5], schema.SoftmaxOptionsT(1.0)))
    wider = model.constant(np.array([[0, 0], [1, 2], [0, 1], [0, 3]], np.int32))
    found.append(model.add("PAD", [x, wider], [1, 9, 9, 7], schema.PadOptionsT()))
    found.append(model.add("HARD_SWISH", [x], [1, 6, 8, 4], schema.HardSwishOptionsT()))
    found.append(model.add("LOGISTIC", [x], [1, 6, 8, 4]))
    loaded = load_model(str(model.save(tmp_path / "m.tflite", *found)))
    assert operators(loaded)["nn.prelu"] == 1
    assert_right(loaded)


def transposed(path: Path, name: str, kernel: int, padding: int, size: Sequence[int], options: object) -> Path:
    model = Model()
    x = model.input(1, 3, 4, 5)
    weights, bias = model.constant(random(2, kernel, kernel, 5)), model.constant(random(2, seed=1))
    shape = [1, *size, 2]
    inputs = [x, weights, bias]
    if name == "TRANSPOSE_CONV":
        inputs = [model.constant(np.array(shape, np.int32)), weights, x, bias]
    return model.save(path, model.add(name, inputs, shape, options, version=4))


@pytest.mark.parametrize(("kernel", "padding", "size"), [(2, SAME, (6, 8)), (3, SAME, (6, 8)), (4, VALID, (8, 10))])
@pytest.mark.parametrize("activation", [0, RELU])
def test_transposed_convolution(
    tmp_path: Path, kernel: int, padding: int, size: tuple[int, int], activation: int
) -> None:
    options = schema.TransposeConvOptionsT(padding, 2, 2, activation)
    assert_right(load_model(str(transposed(tmp_path / "t.tflite", "TRANSPOSE_CONV", kernel, padding, size, options))))


@pytest.mark.parametrize(("kernel", "padding", "size"), [(2, SAME, (6, 8)), (3, SAME, (6, 8)), (4, VALID, (8, 10))])
def test_mediapipes_transposed_convolution_is_what_its_kernel_adds_up(
    tmp_path: Path, kernel: int, padding: int, size: tuple[int, int]
) -> None:
    """Each input is spread over the output by the weights, ``stride`` apart, less the padding before; then the bias."""
    options = np.frombuffer(np.array([1 if padding == SAME else 2, 2, 2], "<i4").tobytes(), np.uint8)
    path = transposed(tmp_path / "t.tflite", "Convolution2DTransposeBias", kernel, padding, size, options)
    loaded = load_model(str(path))
    inputs = loaded.sample_inputs()
    weights = random(2, kernel, kernel, 5)
    wanted = np.zeros((1, *size, 2), np.float32) + random(2, seed=1)
    before = [max(0, (n - 1) * 2 + kernel - out) // 2 for n, out in zip((3, 4), size, strict=True)]
    for y, x, ky, kx in np.ndindex(3, 4, kernel, kernel):
        row, column = 2 * y + ky - before[0], 2 * x + kx - before[1]
        if 0 <= row < size[0] and 0 <= column < size[1]:
            wanted[0, row, column] += weights[:, ky, kx] @ inputs["x"][0, y, x]
    for found in (*outputs(loaded, inputs), *reference_outputs(loaded, inputs)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_dynamic_batch_is_bound_as_of_an_onnx_file(tmp_path: Path) -> None:
    model = Model()
    x = model.input(1, 4, 4, 2, signature=[-1, 4, 4, 2])
    y = model.add("PRELU", [x, model.constant(random(4, 4, 2))], [1, 4, 4, 2])
    flat = model.constant(np.array([-1, 32], np.int32))
    y = model.add("RESHAPE", [y, flat], [1, 32], schema.ReshapeOptionsT([-1, 32]))
    path = str(model.save(tmp_path / "b.tflite", y))
    with pytest.raises(UserError, match="dynamic") as error:
        load_model(path)
    assert error.value.next == "add --shape x:[1,4,4,2]"
    loaded = load_model(path, {"x": (3, 4, 4, 2)})
    assert loaded.inputs == (("x", (3, 4, 4, 2), "float32"),)
    assert_right(loaded)
    with pytest.raises(UserError, match="does not fit"):
        load_model(path, {"x": (3, 4, 4, 3)})


def test_inputs_keep_their_order_and_unused_ones_stay(tmp_path: Path) -> None:
    model = Model()
    a, b, c = (model.input(1, 4, name=name) for name in ("a", "b", "c"))
    loaded = load_model(str(model.save(tmp_path / "i.tflite", model.add("SUB", [c, a], [1, 4], schema.SubOptionsT()))))
    assert [name for name, *_ in loaded.inputs] == ["a", "b", "c"] and b == 1
    assert [str(parameter.name_hint) for parameter in loaded.module["main"].params] == ["a", "b", "c"]
    assert_right(loaded)


@needs_mediapipe
@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("pose_detection/pose_detection", ("DENSIFY",)),
        (
            "face_landmark/face_landmark_with_attention",
            ("Landmarks2TransformMatrix", "TransformTensorBilinear", "TransformLandmarks"),
        ),
    ],
)
def test_sparse_weights_and_other_custom_operators_are_refused_by_name(file: str, names: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="not supported") as error:
        load_model(str(zoo.entry("face_detection").path().parents[1] / f"{file}.tflite"))
    assert all(name in error.value.what for name in names)


def test_other_operators_that_stay_out_are_named(tmp_path: Path) -> None:
    model = Model()
    x = model.input(1, 4)
    bent = model.add("SOFTMAX", [x], [1, 4], schema.SoftmaxOptionsT(2.0))
    y = model.add("ERF_OF_MINE", [bent], [1, 4])
    z = model.add("RELU", [x], [1, 4])
    model.graph.tensors[z].quantization = schema.QuantizationParametersT(scale=[0.5], zeroPoint=[0])
    with pytest.raises(UserError, match="ERF_OF_MINE, RELU, SOFTMAX") as error:
        load_model(str(model.save(tmp_path / "o.tflite", y, z)))
    assert "beta 2" in error.value.evidence and "RELU (of quantised float32)" in error.value.evidence


def test_control_flow_is_refused(tmp_path: Path) -> None:
    model = Model()
    x = model.input(1, 4)
    path = model.save(tmp_path / "w.tflite", model.add("WHILE", [x], [1, 4], schema.WhileOptionsT(0, 1)))
    content = read_tflite(path)
    content.subgraphs.append(content.subgraphs[0])
    path.write_bytes(write_tflite(content))
    with pytest.raises(UserError, match="2 graphs") as error:
        load_model(str(path))
    assert "WHILE" in error.value.evidence


def test_an_operator_that_cannot_be_converted_is_named(tmp_path: Path) -> None:
    model = Model()
    x, weights = model.input(1, 6, 6, 4), model.constant(random(8, 3, 3, 3))
    y = model.add("CONV_2D", [x, weights], [1, 4, 4, 8], schema.Conv2DOptionsT(VALID, 1, 1))
    with pytest.raises(UserError, match="cannot be imported") as error:
        load_model(str(model.save(tmp_path / "c.tflite", y)))
    assert "CONV_2D" in error.value.evidence
