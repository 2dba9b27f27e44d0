"""Networks quantised by onnxruntime: integer products, and onnxruntime's answer within one quantum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relay

from tests.frontend.quantised_models import FORMATS, SMALL, Type, quantised
from tests.relay.oracle import partitioned, plan_of, run_together
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.measure.answers import answer_errors
from tvm_codl.plan.plan import Placement
from tvm_codl.relay.calls import is_call, value_of
from tvm_codl.relay.float16 import GpuFloat16
from tvm_codl.relay.model import LoadedModel
from tvm_codl.relay.pipeline import extract
from tvm_codl.relay.walk import in_order

#: Products in each network that must be of integers.
PRODUCTS = {"strided": 2, "depthwise": 2, "grouped": 2, "sum_of_two": 2, "two_scales": 4, "concatenated": 3,
            "max_pooled": 2, "classified": 2, "activated": 2}  # fmt: skip


def products(model: LoadedModel) -> list[relay.Call]:
    calls = [expr for expr in in_order(model.module["main"].body) if is_call(expr)]
    assert not any(call.op.name.startswith("qnn.") for call in calls)
    return [call for call in calls if is_call(call, "nn.conv2d", "nn.dense")]


@pytest.mark.parametrize("name", SMALL)
def test_a_quantised_network_multiplies_integers_and_gives_onnxruntimes_answer(name: str, tmp_path: Path) -> None:
    types: tuple[Type, ...] = ("QUInt8", "QInt8") if name in ("strided", "padded") else ("QUInt8",)
    models = [load_model(str(quantised(SMALL[name], tmp_path, f, t))) for f in FORMATS for t in types]
    inputs = models[0].sample_inputs()
    answers = run_together([model.module for model in models], [inputs["input"]])
    for model, answer in zip(models, answers, strict=True):
        made = products(model)
        assert len(made) == PRODUCTS.get(name, 1), model.name
        for call in made:
            weights = value_of(call.args[1])
            assert weights is not None and weights.dtype == np.int8
            assert call.args[0].checked_type.dtype in ("int8", "uint8") and call.attrs.out_dtype == "int32"
        (quantum,) = model.quanta
        assert quantum > 0
        wanted = reference_outputs(model, inputs)
        assert answer_errors(answer, wanted, model.quanta)[1] == 0, model.name
        assert np.abs(answer[0] - wanted[0]).max() < 2.001 * quantum


def test_between_operators_tensors_have_eight_bits(tmp_path: Path) -> None:
    """Also those that are dequantised for a sum, or for a mean."""
    for name in ("two_scales", "classified", "activated"):
        graph, _, _ = extract(load_model(str(quantised(SMALL[name], tmp_path, "QDQ"))).module)
        ends = {*graph.inputs, *graph.outputs}
        between = [t for t in graph.tensors if t.id not in ends and np.prod(t.shape) > 100]
        assert between and {t.dtype for t in between} <= {"int8", "uint8"}, name


def test_behind_a_relu_int8_is_stored_as_uint8_and_padded_with_zeros(tmp_path: Path) -> None:
    model = load_model(str(quantised(SMALL["depthwise"], tmp_path, "QDQ", "QInt8")))
    last = products(model)[-1]
    assert last.args[0].checked_type.dtype == "uint8" and any(int(p) for p in last.attrs.padding)


def test_what_quantises_is_not_computed_in_float16(tmp_path: Path) -> None:
    model = load_model(str(quantised(SMALL["padded"], tmp_path, "QDQ")))
    graph, _, prepared = extract(model.module)
    module = partitioned(prepared, plan_of(graph, other=Placement("gpu")))
    assert "float16" not in str(GpuFloat16()(module))
