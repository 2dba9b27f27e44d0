"""Regions timed beside one another: both processors work, and what cannot be measured is refused."""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.runtime.partitions import answer, convolutions
from tvm_codl.build.dataflow import Argument, Dataflow, Region, Root, Value
from tvm_codl.build.library import build, build_dataflow
from tvm_codl.errors import DeviceError
from tvm_codl.runtime import plugin
from tvm_codl.runtime.comodule import CoModule

pytestmark = pytest.mark.usefixtures("opencl")


@pytest.fixture(scope="module")
def loaded(opencl: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[tvm.runtime.Module, np.ndarray]:
    split, whole = convolutions(extent=24)
    built = build(split, tvm.target.Target("llvm"), tvm.target.Target("opencl"))
    path = built.export(tmp_path_factory.mktemp("busy") / "model.so")
    return tvm.runtime.load_module(str(path)), answer(whole, sample())


def sample() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 24, 24, 16)).astype("float32")


def processors(library: tvm.runtime.Module) -> list[str]:
    return [region["processor"] for region in json.loads(library["program"]())["regions"]]


@pytest.mark.alone
@pytest.mark.parametrize("sharing", ["svm", "mapped", "copied"])
def test_every_region_is_timed_beside_one_of_the_other_processor(loaded: tuple, sharing: str) -> None:
    library, wanted = loaded
    on = processors(library)
    module = CoModule(library, tvm.cpu(), sharing=sharing)
    module.set_inputs({"x": sample()})
    for region, processor in enumerate(on):
        other = on.index("gpu" if processor == "cpu" else "cpu")
        for beside in (None, other):
            times = module.time_region_busy(region, beside, 3, 0.2)
            assert len(times) == 3 and all(0 < ms < 1e4 for ms in times)
        assert all(ms > 0 for ms in module.time_region(region, 2, 0.0, 1 << 20))
    # Measuring leaves the network as it was.
    np.testing.assert_allclose(module.run()[0], wanted, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_timed_is_refused(loaded: tuple) -> None:
    library, wanted = loaded
    on = processors(library)
    module = CoModule(library, tvm.cpu())
    first = on.index("cpu")
    second = on.index("cpu", first + 1)
    with pytest.raises(DeviceError, match="one processor"):
        module.time_region_busy(first, second)
    with pytest.raises(DeviceError, match="no region 99"):
        module.time_region_busy(first, 99)
    with pytest.raises(DeviceError, match="no region -2"):
        module.time_region_busy(-2)
    np.testing.assert_allclose(module.run({"x": sample()})[0], wanted, rtol=1e-4, atol=1e-5)


def test_a_timeline_says_what_the_cpu_does_for_the_gpu(loaded: tuple) -> None:
    library, _ = loaded
    module = CoModule(library, tvm.cpu())
    module.run({"x": sample()})
    sharing = [e for e in module.timeline() if e["kind"] == "share"]
    assert {e["name"] for e in sharing} == {"feed", "signal"}
    assert {e["processor"] for e in sharing} == {"cpu"}


def timed(shape: tuple[int, int], folder: Path) -> Path:
    """A dense layer on the GPU in a library that is only timed: its weights of ``shape`` have no values."""
    x = relay.var("x", shape=(1, shape[1]))
    body = relay.nn.dense(x, relay.const(np.zeros(shape, "float32")))
    function = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))["main"]
    roots = [Root((1, shape[1]), "float32"), Root((1, shape[0]), "float32")]
    region = Region("dense", "gpu", "", function, [Argument(Value(0))], [Value(1)])
    flow = Dataflow(roots, [region], [], [], timed_alone=True)
    gpu = tvm.target.Target("opencl", host="llvm")
    return build_dataflow(flow, tvm.target.Target("llvm"), gpu, keep_weights=False).export(folder / f"{shape[0]}.so")


def resident_bytes() -> int:
    """Bytes that this process has written and that lie in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def load(small: Path, large: Path) -> tuple[int, list[float]]:
    """The resident bytes that ``large`` adds to a process, and its times beside networks of some sizes."""
    plugin.load()
    first = CoModule(tvm.runtime.load_module(str(small)), tvm.cpu())  # a driver, its compiler
    first.time_region(0, 1, 0.0)
    before = resident_bytes()
    module = CoModule(tvm.runtime.load_module(str(large)), tvm.cpu())
    gained = resident_bytes() - before
    return gained, [ms for size in (-1, 0, 100, 1 << 20, 1 << 40) for ms in module.time_region(0, 2, 0.0, size)]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what is resident")
def test_weights_that_have_no_values_have_memory(opencl: None, tmp_path: Path) -> None:
    """A buffer that was never written is one page of zeros, read from the first cache: no weight is that fast.

    In a process of its own: in this one, memory of earlier tests may be freed meanwhile.
    """
    shape = (4096, 4096)
    small, large = timed((64, 64), tmp_path), timed(shape, tmp_path)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        gained, times = process.submit(load, small, large).result(timeout=300)
    assert gained > 0.8 * 4 * shape[0] * shape[1]
    assert all(ms > 0 for ms in times)
