"""What one region's kernels are."""

from __future__ import annotations

from typing import Literal

import pytest
import tvm
from tvm import relay

from tests.relay.networks import Weights, conv, image
from tests.relay.oracle import partitioned, plan_of
from tvm_codl.build import dataflow
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.build.kernels import compile_regions
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.plan.plan import Placement
from tvm_codl.relay.pipeline import extract


def sums_of_two_convolutions() -> tvm.IRModule:
    """Either convolution could have each sum fused behind it."""
    w, y = Weights(), image(8)
    x = y
    for _ in range(4):
        y = relay.nn.relu(relay.add(conv(y, w, 8, 8), conv(y, w, 8, 8, k=1)))
    return tvm.IRModule.from_expr(relay.Function([x], y))


@pytest.mark.parametrize("turn", range(3))
def test_a_librarys_kernels_are_the_graphs_operators(turn: int) -> None:
    """They are what is measured.  Stock fusing chooses otherwise now and then."""
    graph, _, prepared = extract(sums_of_two_convolutions())
    flow = dataflow.read(partitioned(prepared, plan_of(graph, other=Placement("cpu"))))
    cpu = cpu_target()
    kernels = compile_regions(flow, "cpu", tvm.target.Target(cpu, host=cpu), KernelCache())
    assert kernels is not None
    called = [call.function.split("_fused_")[1] for region in kernels.regions for call in region.calls]
    wanted = ["_".join(node.op.replace(".", "_") for node in operator.body) for operator in graph.operators]
    assert called == wanted


def test_a_gpus_kernel_has_no_more_arguments_than_its_target_allows() -> None:
    params = [relay.var(f"x{i}", shape=(1, 4)) for i in range(140)]
    joined = relay.concatenate([relay.nn.relu(x) for x in params], axis=1)
    graph, _, prepared = extract(tvm.IRModule.from_expr(relay.Function(params, joined)))
    flow = dataflow.read(partitioned(prepared, plan_of(graph, other=Placement("gpu"))))
    cpu = cpu_target()
    target = tvm.target.Target(gpu_target(cpu), host=cpu)
    kernels = compile_regions(flow, "gpu", target, KernelCache())
    assert kernels is not None
    assert all(len(call.operands) <= target.max_function_args for region in kernels.regions for call in region.calls)


def test_a_register_tile_asks_for_no_memory() -> None:
    """TVM asked its pool for it at each item, 4 % of PoseNet's time with AVX-512, whose tiles are larger than 1 KB."""
    w, x = Weights(), image(64, 12)
    graph, _, prepared = extract(tvm.IRModule.from_expr(relay.Function([x], conv(x, w, 64, 64, k=1))))
    flow = dataflow.read(partitioned(prepared, plan_of(graph, other=Placement("cpu"))))
    cpu = cpu_target("skylake-avx512")
    kernels = compile_regions(flow, "cpu", tvm.target.Target(cpu, host=cpu), KernelCache())
    assert kernels is not None
    codes = [kernel.code for kernel in kernels.kernels.values() if "conv2d" in kernel.function]
    assert codes
    assert not any(b"TVMBackendAllocWorkspace" in code for code in codes)


@pytest.mark.parametrize("on", ["cpu", "gpu"])
def test_kernels_do_not_check_what_the_program_gives_them(on: Literal["cpu", "gpu"]) -> None:
    """These checks were a third of the time to compile a kernel for a CPU and nine tenths of a small one's code."""
    graph, _, prepared = extract(sums_of_two_convolutions())
    flow = dataflow.read(partitioned(prepared, plan_of(graph, other=Placement(on))))
    cpu = cpu_target()
    kernels = compile_regions(
        flow, on, tvm.target.Target({"cpu": cpu, "gpu": gpu_target(cpu)}[on], host=cpu), KernelCache()
    )
    assert kernels is not None and kernels.kernels
    assert not any(b"is expected to" in kernel.code for kernel in kernels.kernels.values())
