"""Operators of the rule table, split anywhere and run by the co-executor on both processors, give the unsplit answer.

The larger property test, over more examples, goes through stock Relay (tests/relay/test_any_split.py).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.relay.operator_cases import CASES
from tests.relay.oracle import partitioned, plan_of, random_inputs, run_together
from tvm_codl.build.library import build
from tvm_codl.graph.split import NoSplit, axes, piece
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.plan.plan import Placement
from tvm_codl.relay.pipeline import extract
from tvm_codl.runtime.comodule import CoModule

pytestmark = pytest.mark.usefixtures("opencl")

CLASSES = (
    "conv2d", "conv2d_grouped", "conv2d_depthwise", "conv2d_residual", "conv2d_transpose", "dense", "batch_matmul",
    "max_pool2d", "avg_pool2d", "global_pool2d", "elementwise_broadcast", "concatenate", "resize2d", "pad", "softmax",
    "layer_norm", "instance_norm",
)  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
@settings(
    max_examples=examples(1),
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_split_on_both_processors_gives_the_unsplit_answer(name: str, data: st.DataObject) -> None:
    mod = tvm.IRModule.from_expr(CASES[name](data.draw))
    graph, _, prepared = extract(mod)
    placements = {}
    for operator in graph.operators:
        found = list(axes(operator, graph).values())
        if not found:
            continue
        axis = data.draw(st.sampled_from(found))
        at = axis.granule * data.draw(st.integers(1, (axis.extent - 1) // axis.granule))
        try:
            piece(operator, graph, axis.name, 0, at)
            piece(operator, graph, axis.name, at, axis.extent)
        except NoSplit:
            continue
        placements[operator.id] = Placement("split", axis.name, at)
    assume(placements)
    inputs = random_inputs(mod)
    ((wanted, *_),) = run_together([mod], inputs)
    cpu = cpu_target()
    with scheduled():
        library = build(partitioned(prepared, plan_of(graph, placements)), cpu, gpu_target(cpu))
    with tempfile.TemporaryDirectory() as folder:
        loaded = tvm.runtime.load_module(str(library.export(Path(folder) / "model.so")))
        for sharing in ("svm", "copied"):
            module = CoModule(loaded, tvm.cpu(), sharing=sharing)
            outputs = module.run({port.name: value for port, value in zip(module.inputs, inputs, strict=True)})
            np.testing.assert_allclose(outputs[0], wanted, rtol=1e-3, atol=1e-4, err_msg=f"{placements} of\n{mod}")
