"""Runs of convolutions whose pieces overlap, built and run by the co-executor on both processors."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.relay.networks import Weights, conv, image
from tests.relay.oracle import partitioned, plan_of, random_inputs, run_together
from tvm_codl.build.library import build
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.plan.plan import Placement
from tvm_codl.relay.pipeline import extract
from tvm_codl.runtime.comodule import CoModule

pytestmark = pytest.mark.usefixtures("opencl")


def rows(at: int, *over: int) -> Placement:
    return Placement("split", "height", at, over if over else (0, 0))  # type: ignore[arg-type]


@cache
def residual() -> tvm.IRModule:
    """Four operators of 16 rows, then 8; the first one's result is read twice and is an output too."""
    w, x = Weights(), image(8, rows=16)
    first = relay.nn.relu(conv(x, w, 8, 8))
    y = relay.nn.relu(conv(first, w, 8, 8))
    y = relay.nn.relu(relay.add(conv(y, w, 8, 8), first))
    y = conv(y, w, 8, 8, s=2)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([first, y]))))


@cache
def wanted_outputs() -> list[np.ndarray]:
    (wanted,) = run_together([residual()], random_inputs(residual()))
    return wanted


#: What crosses in each: nothing but the outputs, a halo of one side, and everything.
PLANS = {
    "nothing crosses": (rows(8, 3, 3), rows(8, 2, 2), rows(8, 1, 1), rows(4)),
    "half of it crosses": (rows(8, 2, 0), rows(8, 1, 0), rows(7), rows(4)),
    "joined of shares": (rows(6, 4, 2), rows(9, 1, 3), rows(5, 2, 2), rows(3, 1, 1)),
    "between processors": (rows(6, 4, 2), Placement("gpu"), rows(5, 3, 3), Placement("cpu")),
    "channels that overlap": (Placement("split", "channels", 4, (2, 1)), rows(8, 2, 2), rows(8, 1, 1), rows(4)),
}


@pytest.mark.parametrize("name", PLANS)
def test_overlapping_pieces_give_the_unsplit_answer(name: str, tmp_path: Path) -> None:
    mod = residual()
    graph, _, prepared = extract(mod)
    placements = {o.id: p for o, p in zip(graph.operators, PLANS[name], strict=True)}
    inputs, wanted = random_inputs(mod), wanted_outputs()
    cpu = cpu_target()
    with scheduled():
        library = build(partitioned(prepared, plan_of(graph, placements)), cpu, gpu_target(cpu))
    loaded = tvm.runtime.load_module(str(library.export(tmp_path / "model.so")))
    for sharing in ("svm", "mapped", "copied"):
        module = CoModule(loaded, tvm.cpu(), sharing=sharing)
        for _ in range(2):
            outputs = module.run({port.name: value for port, value in zip(module.inputs, inputs, strict=True)})
            for ours, theirs in zip(outputs, wanted, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4, err_msg=name)
