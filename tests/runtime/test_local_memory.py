"""Convolutions and products in local memory give stock TVM's answers, on the OpenCL device of this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import autotvm, relay, tir

from tests.runtime.schedule_cases import conv, module, ours, stock, weights
from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.schedules import Scheduler
from tvm_codl.cost.table import table
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.gpu import usual
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.reuse import LOCAL_CONV2D, Tunings
from tvm_codl.kernels.tuner.answers import HostAnswers
from tvm_codl.kernels.workloads import workloads
from tvm_codl.records.workload import Workload
from tvm_codl.relay.pipeline import extract

pytestmark = pytest.mark.usefixtures("opencl")

nn = relay.nn
CASES = {
    "3x3": conv(16, 64, 14, 14, 3, pad=1),
    "3x3 with tails": conv(20, 36, 13, 11, 3, pad=1),
    "3x3 in parts": conv(256, 32, 7, 7, 3, pad=1),
    "1x1": conv(64, 32, 7, 7, 1),
    "1x1 strided": conv(16, 24, 15, 15, 1, stride=2),
    "3x3 strided": conv(16, 24, 15, 15, 3, pad=1, stride=2),
    "7x7 of a picture": conv(3, 32, 30, 30, 7, pad=3, stride=2),
    "three channels out": conv(16, 3, 9, 9, 3, pad=1),
    "five channels in": conv(5, 10, 9, 9, 3, pad=1),
    "dilated": conv(16, 16, 14, 14, 3, pad=2, dilation=2),
    "dense": module(lambda x: nn.relu(nn.dense(x, weights(40, 512))), (1, 512)),
    "dense with tails": module(lambda x: nn.dense(x, weights(33, 130)), (5, 130)),
    "batch_matmul": module(lambda x, y: nn.batch_matmul(x, y), (3, 10, 64), (3, 20, 64)),
    "batch_matmul, plain": module(lambda x, y: nn.batch_matmul(x, y, transpose_b=False), (3, 10, 64), (3, 64, 20)),
    "batch_matmul, left transposed and one for all": module(
        lambda x, y: nn.batch_matmul(x, y, transpose_a=True, transpose_b=False), (1, 64, 10), (3, 64, 21)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kernel_gives_stock_answer(name: str, library_path: Path) -> None:
    got, want = ours(CASES[name], "gpu", library_path, kind="local")[0], stock(CASES[name])[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def _task(name: str) -> autotvm.task.Task:
    cpu = cpu_target()
    target = gpu_target(cpu, usual("local"))
    ((task, *arguments),) = workloads(CASES[name], target)
    return autotvm.task.create(task, tuple(arguments), target)


@pytest.mark.parametrize("name", ["3x3 with tails", "7x7 of a picture", "dense"])
def test_every_tile_of_the_space_lowers(name: str) -> None:
    task = _task(name)
    for index in range(0, task.config_space.range_length, 12):
        with task.target, tvm.transform.PassContext(opt_level=3, config={"tir.disable_cse_tir": True}):
            schedule, arguments = task.instantiate(task.config_space.get(index))
            assert tvm.lower(schedule, arguments)


@pytest.mark.parametrize("name", ["3x3 in parts", "dense"])
def test_parts_are_added_in_registers(name: str) -> None:
    """Nothing is fused behind the kernel: the sum once went through its result, each part after the one before."""
    task = _task(name)
    with task.target:
        lowered = tvm.lower(*task.instantiate(task.config_space.get(0)))
    loaded: set[str] = set()
    tir.stmt_functor.post_order_visit(
        lowered["main"].body, lambda node: loaded.add(node.buffer.name) if isinstance(node, tir.BufferLoad) else None
    )
    assert "acc" in loaded and "result" not in loaded


def _input(answers: HostAnswers, shape: tuple[int, ...]) -> np.ndarray:
    return next(v for i, v in enumerate(answers.inputs[0]) if v.shape == tuple(shape) and i != answers.place)


@pytest.mark.parametrize("name", ["3x3 with tails", "1x1 strided", "dense", "batch_matmul"])
def test_the_host_has_an_answer_to_compare_with(name: str) -> None:
    """That of the same template, built for the CPU: numpy has the products, stock TVM the convolutions."""
    task = _task(name)
    answers = HostAnswers(task)
    data, kernel = (_input(answers, task.args[i][1]) for i in (0, 1))
    if name == "dense":
        want = data @ kernel[0]
    elif name == "batch_matmul":
        want = data @ kernel.transpose(0, 2, 1)
    else:
        attributes = dict(zip(("strides", "padding", "dilation"), task.args[2:5], strict=True))
        shape = kernel.shape
        mod = module(
            lambda x, w: nn.conv2d(
                x, w, channels=shape[3], kernel_size=shape[:2], data_layout="NHWC", kernel_layout="HWIO", **attributes
            ),
            data.shape, shape,
        )  # fmt: skip
        with tvm.transform.PassContext(opt_level=1, config={"tir.disable_cse_tir": True}):
            built = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()
        want = built(data, kernel).numpy()
    np.testing.assert_allclose(answers.wanted[0], want, rtol=1e-3, atol=1e-4)


def test_the_cost_model_knows_the_tiles_that_run() -> None:
    """The scheduler of costs and the build ask one rule."""
    mod = CASES["3x3 in parts"]
    graph, _, _ = extract(mod)
    (workload,) = [Workload.of(o, graph) for o in graph.operators if Workload.of(o, graph).kind == "conv2d"]
    gpu = usual("local")
    target = gpu_target(cpu_target(), gpu)
    scheduler = Scheduler(Tunings(), "gpu", DeviceFacts(gpu=gpu))
    s = scheduler.schedules(table([workload]))
    with scheduled(shipped=False):
        ((name, *arguments),) = workloads(mod, target)
        assert name == LOCAL_CONV2D
        task = autotvm.task.create(name, tuple(arguments), target)
    (variant,) = scheduler.variants(table([workload]))
    first = task.config_space.get(0)["tile"].val
    assert first.startswith(f"{s.columns[0]}x{s.rows[0]}x{s.blocks[0]}-") and s.nanoseconds[0] > 0
    assert "local memory" in variant.words and f"{first.split('-')[-1]} parts" in variant.words
