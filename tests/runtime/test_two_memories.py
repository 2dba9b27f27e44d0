"""Two memories: transfers run on queues of their own, and still nothing is read before it is there.

Times are of one clock, the device's; only their order counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.runtime.partitions import Network
from tvm_codl.build.library import build
from tvm_codl.runtime.comodule import CoModule

pytestmark = pytest.mark.usefixtures("opencl")
SHAPE = (1, 32, 32, 4)
LAYERS = 5


def turns() -> tvm.IRModule:
    """Layers on the GPU and the CPU in turn, and beside them a chain of layers on the GPU alone that ends with them."""
    net = Network()
    x = relay.var("x", shape=SHAPE)
    value = own = x
    for step in range(LAYERS):
        add = relay.const(float(step + 1))
        value = net.region("gpu", lambda p, add=add: relay.nn.relu(p) + add, value, shapes=[SHAPE])
        own = net.region("gpu", lambda p, add=add: relay.nn.relu(p) * add, own, shapes=[SHAPE])
        value = net.region("cpu", lambda p, add=add: relay.nn.relu(p) - add, value, shapes=[SHAPE])
    return net.finish([x], net.region("gpu", lambda a, b: a + b, value, own, shapes=[SHAPE, SHAPE]))


def wanted(given: np.ndarray) -> np.ndarray:
    value = own = given
    for step in range(LAYERS):
        value = np.maximum(np.maximum(value, 0) + (step + 1), 0) - (step + 1)
        own = np.maximum(own, 0) * (step + 1)
    return value + own


@pytest.fixture(scope="module")
def library(opencl: None, tmp_path_factory: pytest.TempPathFactory) -> tvm.runtime.Module:
    path = build(turns(), tvm.target.Target("llvm"), tvm.target.Target("opencl")).export(
        tmp_path_factory.mktemp("two") / "turns.so"
    )
    return tvm.runtime.load_module(str(path))


def test_every_run_is_right_however_transfers_and_kernels_overlap(library: tvm.runtime.Module) -> None:
    module = CoModule(library, tvm.cpu(), sharing="copied")
    for seed in range(20):
        given = np.random.default_rng(seed).standard_normal(SHAPE).astype("float32")
        np.testing.assert_allclose(module.run({"x": given})[0], wanted(given), rtol=1e-5)
        if seed % 5 == 0:
            module.timeline()
            np.testing.assert_allclose(module.get_outputs()[0], wanted(given), rtol=1e-5)


def spans(module: CoModule, processor: str, kind: str) -> list[dict[str, Any]]:
    found = [s for s in module.timeline() if s["processor"] == processor]
    return sorted((s for s in found if s["kind"] == kind), key=lambda s: s["start_us"])


def test_each_crossing_is_one_transfer_and_none_is_there_where_memory_is_one(library: tvm.runtime.Module) -> None:
    crossings = 2 * LAYERS + 2  # there and back each layer; the input, and the output
    copied = CoModule(library, tvm.cpu(), sharing="copied")
    copied.run({"x": np.zeros(SHAPE, "float32")})
    assert len(spans(copied, "gpu", "share")) == crossings
    assert copied.copied_bytes == crossings * int(np.prod(SHAPE)) * 4
    one = CoModule(library, tvm.cpu(), sharing="svm")
    one.run({"x": np.zeros(SHAPE, "float32")})
    assert not spans(one, "gpu", "share") and one.copied_bytes == 0


def test_a_kernel_starts_behind_the_transfer_that_it_reads(library: tvm.runtime.Module) -> None:
    module = CoModule(library, tvm.cpu(), sharing="copied")
    module.run({"x": np.ones(SHAPE, "float32")})
    for _ in range(5):
        events = [s for s in module.timeline() if s["processor"] == "gpu"]
        first = min(s["start_us"] for s in events if s["kind"] == "kernel")
        moved = [s for s in events if s["kind"] == "share"]
        assert any(s["end_us"] <= first for s in moved), "the first kernel reads the input"
        last = max(s["end_us"] for s in events if s["kind"] == "kernel")
        assert any(s["start_us"] >= last for s in moved), "the output is what the last kernel wrote"
