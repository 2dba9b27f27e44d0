"""Networks through the frontend, against onnxruntime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import relay
from tvm.contrib import graph_executor

from tests.frontend.onnx_models import random, save
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.relay.model import LoadedModel


def outputs(model: LoadedModel, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    with tvm.transform.PassContext(opt_level=2, config={"tir.disable_cse_tir": True}):
        library = relay.build(model.module, target="llvm")
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(**inputs)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def assert_right(model: LoadedModel) -> None:
    inputs = model.sample_inputs(seed=3)
    for got, want in zip(outputs(model, inputs), reference_outputs(model, inputs), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(want).max())))


def operators(model: LoadedModel) -> Counter[str]:
    found: Counter[str] = Counter()
    relay.analysis.post_order_visit(
        model.module["main"], lambda e: found.update([e.op.name]) if isinstance(e, relay.Call) else None
    )
    return found


def count_transposes(model: LoadedModel) -> int:
    found = operators(model)
    return found["layout_transform"] + found["transpose"]


def test_small_network_is_right_and_has_one_transpose() -> None:
    model = load_model("zoo:small")
    assert model.inputs == (("input", (1, 3, 32, 32), "float32"),)
    assert model.outputs == ("output",)
    assert count_transposes(model) == 1  # of the input
    assert_right(model)


def test_text_detection_keeps_two_transposes_and_only_needed_operators() -> None:
    model = load_model("zoo:ppocr_det", {"x": (1, 3, 64, 96)})
    assert model.inputs == (("x", (1, 3, 64, 96), "float32"),)
    assert count_transposes(model) == 2  # of the input and of the output
    found = operators(model)
    assert found["nn.conv2d_transpose"] == 0
    assert found["divide"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("source", ["zoo:resnet18", "zoo:ppocr_det"])
def test_whole_networks(source: str) -> None:
    assert_right(load_model(source))


@pytest.mark.parametrize(
    ("kernel", "strides", "attributes"),
    [
        ((2, 2), (2, 2), {}),
        ((3, 3), (3, 3), {}),
        ((3, 3), (2, 2), {"pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((4, 4), (2, 2), {"pads": [1, 1, 1, 1]}),
        ((5, 2), (2, 2), {"pads": [2, 0, 1, 1]}),
        ((2, 3), (4, 4), {"output_padding": [3, 1]}),
        ((2, 2), (1, 1), {}),
        ((3, 3), (2, 1), {}),
        ((3, 3), (2, 2), {"dilations": [2, 3]}),
        ((2, 2), (2, 2), {"group": 2}),
        ((4, 4), (2, 2), {"group": 2, "pads": [1, 1, 1, 1]}),
        ((3, 2), (2, 1), {"group": 2, "dilations": [2, 2]}),
    ],
)
def test_transposed_convolution(
    tmp_path: Path, kernel: tuple[int, int], strides: tuple[int, int], attributes: dict[str, object]
) -> None:
    group = int(attributes.get("group", 1))  # type: ignore[call-overload]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node(
            "ConvTranspose", ["c", "t", "b"], ["d"], kernel_shape=kernel, strides=strides, **attributes,
        ),
        helper.make_node("Mul", ["d", "s"], ["e"]),
        helper.make_node("Conv", ["e", "v"], ["y"]),
    ]  # fmt: skip
    weights = {
        "w": random(4, 3, 1, 1),
        "t": random(4, 6 // group, *kernel, seed=1),
        "b": random(6, seed=2),
        "s": random(6, 1, 1, seed=3),
        "v": random(2, 6, 1, 1, seed=4),
    }
    path = save(tmp_path / "t.onnx", nodes, [1, 3, 5, 7], [1, 2, "h", "w"], weights)
    model = load_model(str(path))
    left = strides[0] != strides[1]
    assert operators(model)["nn.conv2d_transpose"] == (1 if left else 0)
    assert_right(model)


def test_squeeze_and_excitation_stays_in_nhwc_with_constant_weights(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["p"]),
        helper.make_node("Conv", ["p", "u"], ["q"]),
        helper.make_node("HardSigmoid", ["q"], ["g"]),
        helper.make_node("Mul", ["a", "g"], ["m"]),
        helper.make_node("Div", ["m", "six"], ["n"]),
        helper.make_node("Mul", ["n", "two"], ["o"]),
        helper.make_node("Conv", ["o", "v"], ["y"]),
    ]
    weights = {
        "w": random(8, 3, 1, 1),
        "u": random(8, 8, 1, 1, seed=1),
        "v": random(4, 8, 1, 1, seed=2),
        "six": np.array(6, np.float32),
        "two": np.array([2], np.float32),
    }
    model = load_model(str(save(tmp_path / "s.onnx", nodes, [1, 3, 6, 6], [1, 4, 6, 6], weights)))
    assert count_transposes(model) == 2
    found = operators(model)
    assert found["multiply"] == 2  # the excitation's, and one for / 6 * 2
    calls: list[relay.Call] = []
    relay.analysis.post_order_visit(
        model.module["main"], lambda e: calls.append(e) if isinstance(e, relay.Call) else None
    )
    assert all(isinstance(c.args[1], relay.Constant) for c in calls if c.op.name == "nn.conv2d")
    assert_right(model)


def test_value_used_twice_is_not_merged_away(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["x", "one"], ["a"]),
        helper.make_node("Add", ["a", "one"], ["b"]),
        helper.make_node("Mul", ["a", "b"], ["y"]),
    ]
    model = load_model(str(save(tmp_path / "m.onnx", nodes, [1, 4], [1, 4], {"one": np.ones(1, np.float32)})))
    assert_right(model)


@pytest.mark.parametrize("before", [None, np.full(1, 2, np.float32), np.full((1, 1, 1), 2, np.float32)])
def test_a_single_value_of_more_axes_gives_them_to_the_result(tmp_path: Path, before: np.ndarray | None) -> None:
    weights = {"three": np.full((1, 1, 1), 3, np.float32)} | ({} if before is None else {"two": before})
    nodes = [helper.make_node("Mul", ["x", "two"], ["a"])] if before is not None else []
    nodes.append(helper.make_node("Mul", ["a" if nodes else "x", "three"], ["y"]))
    model = load_model(str(save(tmp_path / "m.onnx", nodes, [2, 3], [1, 2, 3], weights)))
    assert_right(model)


def test_unknown_operators_are_all_listed(tmp_path: Path) -> None:
    nodes = [helper.make_node("Frobnicate", ["x"], ["a"]), helper.make_node("Mystery", ["a"], ["y"])]
    path = save(tmp_path / "u.onnx", nodes, [1], [1])
    with pytest.raises(UserError) as error:
        load_model(str(path))
    assert "Frobnicate" in error.value.what
    assert "Mystery" in error.value.what


def test_operator_that_cannot_be_converted_is_the_users_error(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    path = save(tmp_path / "c.onnx", nodes, [1, 3, 8, 8], [1, 4, 8, 8], {"w": random(4, 5, 3, 3)})
    with pytest.raises(UserError, match="cannot be imported"):
        load_model(str(path))


def test_unknown_zoo_name_lists_the_zoo() -> None:
    with pytest.raises(UserError) as error:
        load_model("zoo:nothing")
    assert "zoo:resnet18" in error.value.evidence
