"""The GPU's queue is fed while the CPU works, and neither fills up with what waits for the CPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.runtime.partitions import Network
from tvm_codl.build.library import build
from tvm_codl.device.deadline import call_within
from tvm_codl.runtime.comodule import CoModule

pytestmark = pytest.mark.usefixtures("opencl")
#: Two such segments are more commands than a queue takes at once; each is behind a wait for the CPU.
LONG = 90
SHAPE = (1, 64)
PATIENCE_S = 120.0  # a hang, not a slow machine


def segments() -> tvm.IRModule:
    """The CPU adds 2 and again 2, the GPU adds 1 to the first sum for a long time, then the second sum, then 1 again."""
    net = Network()
    x = relay.var("x", shape=SHAPE)

    def ones(value: relay.Expr) -> relay.Expr:
        for _ in range(LONG):
            value = net.region("gpu", lambda p: p + relay.const(1.0), value, shapes=[SHAPE])
        return value

    first = net.region("cpu", lambda p: p + relay.const(2.0), x, shapes=[SHAPE])
    second = net.region("cpu", lambda p: p + relay.const(2.0), first, shapes=[SHAPE])
    both = net.region("gpu", lambda p, q: p + q, ones(first), second, shapes=[SHAPE, SHAPE])
    return net.finish([x], ones(both))


@pytest.fixture(scope="module")
def loaded(opencl: None, tmp_path_factory: pytest.TempPathFactory) -> tvm.runtime.Module:
    path: Path = tmp_path_factory.mktemp("long") / "long.so"
    build(segments(), tvm.target.Target("llvm"), tvm.target.Target("opencl")).export(path)
    return tvm.runtime.load_module(str(path))


@pytest.mark.parametrize("sharing", ["svm", "mapped", "copied"])
def test_a_list_longer_than_the_queue_behind_a_wait_ends(loaded: tvm.runtime.Module, sharing: str) -> None:
    module = CoModule(loaded, tvm.cpu(), sharing=sharing)
    for value in (np.zeros(SHAPE, "float32"), np.arange(64, dtype="float32").reshape(SHAPE)):
        for _ in range(3):
            found = call_within(PATIENCE_S, partial(module.run, {"x": value}))[0]
            np.testing.assert_array_equal(found, 2 * value + 6 + 2 * LONG)
    assert call_within(PATIENCE_S, module.timeline)


@pytest.mark.parametrize("spin_us", [0, 200])
@pytest.mark.parametrize("sharing", ["svm", "mapped"])
def test_a_gpu_that_waits_for_the_cpu_goes_on(loaded: tvm.runtime.Module, sharing: str, spin_us: int) -> None:
    """Asleep or spinning: the GPU's list of a hundred runs waits for the CPU twice in each."""
    module = CoModule(loaded, tvm.cpu(), sharing=sharing)
    module.set_inputs({"x": np.ones(SHAPE, "float32")})
    module._executor["spin_us"](spin_us)
    assert len(call_within(PATIENCE_S, partial(module.benchmark, 1, 100))) == 100
    np.testing.assert_array_equal(module.run()[0], np.full(SHAPE, 8 + 2 * LONG, "float32"))
