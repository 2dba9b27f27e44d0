"""Small Relay modules for the kernels, and how to run them on our targets and on stock TVM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tvm_codl.build.launches import Launch, make_recorder
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.gpu import Gpu, Kind, usual
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.target import vector_lanes

OPTIONS = {"tir.disable_cse_tir": True}
Body = Callable[..., relay.Expr]


def weights(*shape: int) -> relay.Constant:
    return relay.const(np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32") * 0.2)


def module(body: Body, *shapes: tuple[int, ...]) -> tvm.IRModule:
    inputs = [relay.var(f"x{i}", shape=shape) for i, shape in enumerate(shapes)]
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(inputs, body(*inputs))))


def samples(mod: tvm.IRModule) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    shapes = [tuple(int(d) for d in p.checked_type.shape) for p in mod["main"].params]
    return [random.standard_normal(shape).astype("float32") for shape in shapes]


def stock(mod: tvm.IRModule) -> list[np.ndarray]:
    with tvm.transform.PassContext(opt_level=1, config=OPTIONS):
        return _run(relay.build(mod, "llvm"), mod, tvm.cpu())


def ours(
    mod: tvm.IRModule,
    processor: str,
    path: Path,
    lanes: int = 0,
    kind: Kind = "played",
    launches: dict[str, list[Launch]] | None = None,
) -> list[np.ndarray]:
    """The answer of ``mod``'s kernels; ``launches`` gets those of a GPU."""
    cpu = cpu_target(lanes=lanes)
    target = gpu_target(cpu, usual(kind, vector_lanes(cpu))) if processor == "gpu" else cpu
    recorder = {"tir.add_lower_pass": [make_recorder(launches)]} if launches is not None else {}
    with scheduled(), tvm.transform.PassContext(opt_level=3, config={**OPTIONS, **recorder}):
        library = relay.build(mod, target)
    if processor == "cpu":
        return _run(library, mod, tvm.cpu())
    library.export_library(str(path))
    return _run(tvm.runtime.load_module(str(path)), mod, tvm.device("opencl", 0))


def idle(launch: Launch, gpu: Gpu) -> bool:
    """Whether the kernel's groups leave work-items of a warp without work though there are several groups."""
    return launch.work_group < min(gpu.warp, gpu.max_group) and launch.groups > 1


def _run(library: tvm.runtime.Module, mod: tvm.IRModule, device: tvm.runtime.Device) -> list[np.ndarray]:
    executor = graph_executor.GraphModule(library["default"](device))
    for index, value in enumerate(samples(mod)):
        executor.set_input(index, value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def conv(channels: int, out: int, rows: int, columns: int, k: int, **more: int) -> tvm.IRModule:
    """A convolution with bias and ReLU; ``more``: stride, pad, dilation, groups."""
    groups, pad, stride, dilation = (
        more.get(n, d) for n, d in (("groups", 1), ("pad", 0), ("stride", 1), ("dilation", 1))
    )
    depthwise = groups == channels and groups > 1
    shape = (k, k, channels, out // channels) if depthwise else (k, k, channels // groups, out)

    def body(x: relay.Expr) -> relay.Expr:
        y = relay.nn.conv2d(
            x,
            weights(*shape),
            strides=(stride, stride),
            padding=(pad, pad, pad, pad),
            dilation=(dilation, dilation),
            groups=groups,
            channels=out,
            kernel_size=(k, k),
            data_layout="NHWC",
            kernel_layout="HWOI" if depthwise else "HWIO",
        )
        return relay.nn.relu(relay.nn.bias_add(y, weights(out), axis=3))

    return module(body, (1, rows, columns, channels))
