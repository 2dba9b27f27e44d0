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
