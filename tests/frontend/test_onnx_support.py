from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.frontend.onnx_models import random, save
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model


def test_everything_that_cannot_run_is_in_one_list(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], name="narrow", to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["a"], ["b"], name="widen", to=TensorProto.FLOAT),
        helper.make_node("Det", ["b"], ["c"], name="det"),
        helper.make_node("RandomNormalLike", ["c"], ["y"], name="noise"),
    ]
    path = save(tmp_path / "m.onnx", nodes, [2, 2], [], opset=15)
    with pytest.raises(UserError) as raised:
        load_model(str(path))
    for place in ("'narrow'", "'widen'", "'det'", "'noise'"):
        assert place in raised.value.evidence
    assert raised.value.next


def test_a_network_without_such_operators_loads(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Cast", ["a"], ["b"], to=TensorProto.INT32),
        helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT),
    ]
    path = save(tmp_path / "m.onnx", nodes, [2, 3], [2, 4], {"w": random(3, 4)})
    assert load_model(str(path)).outputs == ("y",)


def test_all_reasons_of_all_kinds_are_in_the_list(tmp_path: Path) -> None:
    """Types, unknown operators of ONNX and of others, ceil_mode, a branch: each with its place, and a remedy."""
    then = helper.make_graph(
        [helper.make_node("Neg", ["e"], ["t"])], "t", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)]
    )
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], name="pool", kernel_shape=[2], strides=[4], pads=[1, 0], ceil_mode=1),
        helper.make_node("Cast", ["a"], ["b"], name="narrow", to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["b"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Det", ["c"], ["d"], name="unknown"),
        helper.make_node("Inverse", ["d"], ["e"], name="foreign", domain="com.example"),
        helper.make_node("ReduceMax", ["e"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["yes"], to=TensorProto.BOOL),
        helper.make_node("If", ["yes"], ["y"], name="branch", then_branch=then, else_branch=then),
    ]
    path = save(tmp_path / "m.onnx", nodes, [1, 1, 7], [], opset=13)
    with pytest.raises(UserError) as raised:
        load_model(str(path))
    for place in ("'pool'", "'narrow'", "'unknown'", "'foreign'", "'branch'"):
        assert place in raised.value.evidence
    assert "check --list" in raised.value.next


def test_a_node_has_all_its_reasons(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.BFLOAT16),
        helper.make_node("RandomNormalLike", ["a"], ["b"], name="noise"),
        helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT),
    ]
    with pytest.raises(UserError) as raised:
        load_model(str(save(tmp_path / "m.onnx", nodes, [2], [], opset=15)))
    assert "random and of type bfloat16" in raised.value.evidence
