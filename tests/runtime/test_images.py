"""Weights that the GPU reads from images: the answers of buffers, and images that are filled once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.runtime.partitions import Network, answer, convolutions
from tvm_codl.build.library import Library, build
from tvm_codl.device.facts import IMAGES as HAS_IMAGES
from tvm_codl.device.facts import ClDevice
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.gpu import usual
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.target import image_side, with_images
from tvm_codl.runtime.comodule import CoModule

#: Vectors of four, as a real GPU's kernels have them, whatever this machine's are.
PIXEL = 4


@pytest.fixture(autouse=True)
def _images(opencl: None) -> None:
    if not ClDevice().number(HAS_IMAGES):
        pytest.skip("this OpenCL device has no images")


def opened(library: Library, path: Path, sharing: str = "svm") -> CoModule:
    return CoModule(tvm.runtime.load_module(str(library.export(path))), tvm.cpu(), sharing=sharing)


def images_in(library: Library) -> int:
    """Kernels that write an image."""
    sources = [inner.get_source() for module in library.module.imported_modules for inner in module.imported_modules]
    return sum(text.count("write_imagef") > 0 for source in sources for text in source.split("// Function: "))


def dense_network() -> tuple[tvm.IRModule, tvm.IRModule]:
    """Two dense layers, the second on the CPU."""
    rng = np.random.default_rng(5)
    one, two = (rng.standard_normal(shape).astype("float32") for shape in ((24, 20), (8, 24)))
    net, x = Network(), relay.var("x", shape=(3, 20))
    y = net.region("gpu", lambda p: relay.nn.relu(relay.nn.dense(p, relay.const(one))), x, shapes=[(3, 20)])
    split = net.finish([x], net.region("cpu", lambda p: relay.nn.dense(p, relay.const(two)), y, shapes=[(3, 24)]))
    z = relay.var("x", shape=(3, 20))
    body = relay.nn.dense(relay.nn.relu(relay.nn.dense(z, relay.const(one))), relay.const(two))
    return split, tvm.IRModule.from_expr(relay.Function([z], body))


NETWORKS = {"convolutions": cache(convolutions), "dense": cache(dense_network)}


@cache
def built(kind: str, side: int) -> Library:
    """A network for a GPU whose images have this side; 0: all weights are in buffers."""
    cpu = cpu_target()
    gpu = gpu_target(cpu, usual("mobile", PIXEL), image_side=side)
    assert image_side(gpu) == 0
    if side:
        gpu = with_images(gpu)
        assert image_side(gpu) == side
    with scheduled():
        return build(NETWORKS[kind]()[0], cpu, gpu)


@pytest.mark.parametrize("sharing", ["svm", "mapped", "copied"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_the_answers_are_those_of_buffers_in_every_run(kind: str, sharing: str, tmp_path: Path) -> None:
    _, whole = NETWORKS[kind]()
    library = built(kind, 8192)
    assert images_in(library) == (3 if kind == "convolutions" else 1)
    module = opened(library, tmp_path / "model.so", sharing)
    shape = [int(size) for size in whole["main"].params[0].type_annotation.shape]
    for seed in (1, 2, 1):
        value = np.random.default_rng(seed).standard_normal(shape).astype("float32")
        np.testing.assert_allclose(module.run({"x": value})[0], answer(whole, value), rtol=1e-4, atol=1e-4)


def test_an_image_is_filled_when_the_library_is_loaded_and_no_run_does_it_again(tmp_path: Path) -> None:
    launched = {}
    for side in (0, 8192):
        module = opened(built("convolutions", side), tmp_path / f"{side}.so")
        module.run({"x": np.zeros((1, 12, 12, 16), "float32")})
        launched[side] = sum((e["processor"], e["kind"]) == ("gpu", "kernel") for e in module.timeline())
    assert launched[8192] == launched[0] > 0


def test_weights_that_no_image_holds_stay_in_buffers(tmp_path: Path) -> None:
    library = built("convolutions", 64)  # a row of a 3 x 3 kernel of 16 channels has 144 pixels
    assert images_in(library) == 0
    value = np.random.default_rng(3).standard_normal((1, 12, 12, 16)).astype("float32")
    got = opened(library, tmp_path / "model.so").run({"x": value})[0]
    np.testing.assert_allclose(got, answer(NETWORKS["convolutions"]()[1], value), rtol=1e-4, atol=1e-4)


def test_the_images_are_counted_among_what_a_library_holds(tmp_path: Path) -> None:
    module = opened(built("convolutions", 8192), tmp_path / "model.so")
    # One row of the second convolution's channels, all rows of the others: 3 x 3 x 16 x 16, 16 x 16 and 32 x 16 weights.
    assert module.memory_bytes.scratch >= 9 * 16 * (16 + 16 + 32) * 4
