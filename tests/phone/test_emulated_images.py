"""Images on the emulated arm64 phone: TVM's own kernels for Adreno, and ours where a plan's settings ask for images."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.graph_executor import GraphModule

import tvm_codl as codl
from tests.e2e.by_hand import every_operator_split
from tests.phone.emulated import emulated_phone, opencl_missing
from tests.runtime.partitions import answer
from tvm_codl.build.library import linker
from tvm_codl.device.connect import connect
from tvm_codl.device.spec import Direct
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.kernels.toolchain import toolchain
from tvm_codl.measure.choices import offered
from tvm_codl.measure.plan_libraries import build_library, open_library
from tvm_codl.records.settings import Settings
from tvm_codl.runtime.platforms import platform

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(opencl_missing()), reason=opencl_missing())]

SHAPE = (1, 32, 16, 16)


def network() -> tvm.IRModule:
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=SHAPE)
    y: relay.Expr = x
    for _ in range(2):
        weight = relay.const(rng.standard_normal((32, 32, 3, 3)).astype("float32") * 0.05)
        y = relay.nn.relu(relay.nn.conv2d(y, weight, kernel_size=(3, 3), padding=(1, 1), channels=32))
    return tvm.IRModule.from_expr(relay.Function([x], y))


@pytest.mark.parametrize(("device", "images"), [("adreno", True), ("mali", False)])
def test_kernels_of_images_and_of_buffers_are_right(device: str, images: bool, tmp_path: Path) -> None:
    linux = platform("linux-arm64")
    target = tvm.target.Target(f"opencl -device={device}", host=f"llvm -mtriple={linux.triple} -mattr=+neon")
    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_cse_tir": True}):
        built = relay.build(network(), target=target)
    sources = "".join(module.get_source() for module in built.get_lib().imported_modules)
    assert ("image2d_t" in sources) == images
    path = tmp_path / f"{device}.so"
    built.export_library(str(path), fcompile=linker(linux))
    value = np.random.default_rng(4).standard_normal(SHAPE).astype("float32")
    with (
        emulated_phone(tmp_path, port=0, key="emulated") as server,
        connect(Direct("127.0.0.1", server.port, "emulated"), timeout_s=120) as phone,
    ):
        assert phone.profile.images
        phone.remote.upload(str(path))
        runner = GraphModule(phone.remote.load_module(path.name)["default"](phone.gpu))
        runner.set_input("x", value)
        runner.run()
        np.testing.assert_allclose(runner.get_output(0).numpy(), answer(network(), value), rtol=1e-3, atol=1e-4)
        assert np.all(np.asarray(runner.module.time_evaluator("run", phone.gpu, number=1)().results) > 0)


def test_a_plan_whose_gpu_reads_images_gives_the_networks_answer(tmp_path: Path) -> None:
    model = codl.load_model("zoo:small")
    prepared = codl.prepare(model)
    plan = msgspec.structs.replace(every_operator_split(prepared), settings=Settings(gpu_memory="image"))
    inputs = model.sample_inputs()
    with (
        emulated_phone(tmp_path, port=0, key="emulated") as server,
        connect(Direct("127.0.0.1", server.port, "emulated"), timeout_s=120) as phone,
    ):
        assert offered(phone.profile, plan)["gpu_memory"] == ["image"]
        library = build_library(prepared, plan, phone.profile, toolchain(phone.profile), tmp_path / "model.so")
        module = open_library(library, phone)
        assert " -keys=codl_gpu,codl,v4,played,u1,opencl,gpu,images " in module.about.build["gpu"]
        for _ in range(2):
            (got,), (wanted,) = module.run(inputs), reference_outputs(model, inputs)
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)
