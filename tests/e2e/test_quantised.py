"""Networks quantised by onnxruntime, both forms, give its answer on the reference phone: on the CPU, on the GPU, and split."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import tvm_codl as codl
from tests.e2e.by_hand import every_operator_split
from tests.frontend.quantised_models import FORMATS, Format, quantised
from tvm_codl.frontend import zoo
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.frontend.zoo import resnet
from tvm_codl.measure.answers import check_answer
from tvm_codl.measure.bench import uniform_plan

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet18": resnet.build_18,
    "mobilenet_v2": lambda: zoo.mobilenet.build_v2(96),
}
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_quantised_network_gives_onnxruntimes_answer(name: str, format: Format, tmp_path: Path) -> None:
    model = codl.load_model(str(quantised(NETWORKS[name](), tmp_path, format)))
    prepared = codl.prepare(model)
    inputs = model.sample_inputs()
    wanted = reference_outputs(model, inputs)
    plans = {
        "cpu": uniform_plan(prepared.graph, "cpu", name),
        "gpu": uniform_plan(prepared.graph, "gpu", name),
        "split": every_operator_split(prepared),
    }
    with codl.connect() as session:
        for kind, plan in plans.items():
            module = session.open(session.build(prepared, plan, tmp_path / f"{kind}.so"))
            check_answer(f"{name} {kind}", module, inputs, wanted, quanta=model.quanta)
