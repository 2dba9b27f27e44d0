"""MediaPipe's networks, split at random places, give LiteRT's answer."""

from __future__ import annotations

import pytest

from tests.frontend.tflite_models import needs_mediapipe
from tests.relay.oracle import partitioned, plan_of, run_together
from tests.relay.test_networks import random_placements
from tvm_codl.frontend import zoo
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.measure.answers import TOLERANCE, answer_errors
from tvm_codl.relay.pipeline import extract

pytestmark = [pytest.mark.slow, needs_mediapipe]


@pytest.mark.parametrize("name", [entry.name for entry in zoo.mediapipe.ENTRIES])
def test_random_splits_give_the_references_answer(name: str) -> None:
    model = load_model(f"zoo:{name}")
    graph, _, prepared = extract(model.module)
    plan = plan_of(graph, random_placements(graph, seed=1))
    assert sum(line.placement.on == "split" for line in plan.operators) >= 0.6 * len(plan.operators)
    inputs = model.sample_inputs()
    (answer,) = run_together([partitioned(prepared, plan)], [inputs[key] for key, *_ in model.inputs])
    assert answer_errors(answer, reference_outputs(model, inputs))[1] <= TOLERANCE
