"""How fast our kernels are: ``python benchmarks/kernels.py [--stock] [--processor cpu|gpu] [NAME …]``.

Times each convolution with bias and ReLU on one core, CPU and OpenCL, with the configurations that ship with the package;
``--stock`` adds TVM's own NCHWc convolution on the CPU.  Times are the least of the repeats: other processes only add.
``--integers`` prints as JSON what the same convolutions of 8-bit integers take of float32's time: medians of interleaved runs.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")

import click
import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tvm_codl.cli.main import main as run_command
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.runtime import opencl, plugin

# name: input channels, output channels, height = width, window, stride, padding, groups
SHAPES = {
    "resnet18 stem": (3, 64, 224, 7, 2, 3, 1),
    "resnet18 56": (64, 64, 56, 3, 1, 1, 1),
    "resnet18 56→28": (64, 128, 56, 3, 2, 1, 1),
    "resnet18 56→28 1×1": (64, 128, 56, 1, 2, 0, 1),
    "resnet18 28": (128, 128, 28, 3, 1, 1, 1),
    "resnet18 28→14": (128, 256, 28, 3, 2, 1, 1),
    "resnet18 28→14 1×1": (128, 256, 28, 1, 2, 0, 1),
    "resnet18 14": (256, 256, 14, 3, 1, 1, 1),
    "resnet18 14→7": (256, 512, 14, 3, 2, 1, 1),
    "resnet18 14→7 1×1": (256, 512, 14, 1, 2, 0, 1),
    "resnet18 7": (512, 512, 7, 3, 1, 1, 1),
    "ppocr_det head": (96, 24, 80, 3, 1, 1, 1),
    "ppocr_det 1×1 160": (16, 32, 160, 1, 1, 0, 1),
    "ppocr_det 1×1 40": (96, 96, 40, 1, 1, 0, 1),
    "ppocr_det 1×1 10": (384, 384, 10, 1, 1, 0, 1),
    "ppocr_det dw 160": (16, 16, 160, 3, 1, 1, 16),
    "ppocr_det dw 80": (48, 48, 80, 3, 1, 1, 48),
    "ppocr_det dw5 20": (192, 192, 20, 5, 1, 2, 192),
}
OPTIONS = {"tir.disable_cse_tir": True}
REPEATS = 20


def network(shape: tuple[int, ...], layout: str) -> tuple[tvm.IRModule, int]:
    """The convolution of one line of the table with bias and ReLU, and its floating-point operations."""
    channels, out, extent, window, stride, pad, groups = shape
    random = np.random.default_rng(0)
    weights = random.standard_normal((out, channels // groups, window, window)).astype("float32")
    last = layout == "NHWC"
    kernel = ("HWOI" if groups > 1 else "HWIO") if last else "OIHW"
    x = relay.var("x", shape=(1, extent, extent, channels) if last else (1, channels, extent, extent))
    y = relay.nn.conv2d(
        x,
        relay.const(np.ascontiguousarray(weights.transpose(["OIHW".index(axis) for axis in kernel]))),
        strides=(stride, stride),
        padding=(pad, pad, pad, pad),
        groups=groups,
        channels=out,
        kernel_size=(window, window),
        data_layout=layout,
        kernel_layout=kernel,
    )
    y = relay.nn.relu(relay.nn.bias_add(y, relay.const(weights[:, 0, 0, 0]), axis=3 if last else 1))
    rows = (extent + 2 * pad - window) // stride + 1
    return tvm.IRModule.from_expr(relay.Function([x], y)), 2 * rows * rows * out * window * window * channels // groups


def of_integers(shape: tuple[int, ...]) -> tvm.IRModule:
    """The convolution of one line of the table for 8-bit integers, with what makes its sums uint8 again."""
    channels, out, extent, window, stride, pad, groups = shape
    random = np.random.default_rng(0)
    kernel = (window, window, channels, 1 if groups > 1 else out)
    x = relay.var("x", shape=(1, extent, extent, channels), dtype="uint8")
    sums = relay.nn.conv2d(
        x,
        relay.const(random.integers(-127, 128, kernel).astype("int8")),
        strides=(stride, stride),
        padding=(pad, pad, pad, pad),
        groups=groups,
        channels=out,
        kernel_size=(window, window),
        data_layout="NHWC",
        kernel_layout="HWOI" if groups > 1 else "HWIO",
        out_dtype="int32",
    )
    sums = relay.nn.bias_add(sums, relay.const(random.integers(-99, 99, out).astype("int32")), axis=3)
    real = relay.clip(relay.cast(sums, "float32") * relay.const(np.full(out, 1e-4, "float32")), 0.0, 255.0)
    rounder = np.float32(1.5 * 2**23)
    bits = relay.reinterpret(real + relay.const(rounder), "int32") - relay.const(int(rounder.view("int32")), "int32")
    return tvm.IRModule.from_expr(relay.Function([x], relay.cast(bits, "uint8")))


def share_of_integers(shape: tuple[int, ...]) -> dict[str, float]:
    """Milliseconds of both types on the CPU, and their ratio."""
    timers = {}
    # Numbers as networks have them: memory that was never written may hold such small ones that a processor is slow with them.
    random = np.random.default_rng(1)
    extent = (1, shape[2], shape[2], shape[0])
    inputs = random.integers(0, 256, extent).astype("uint8"), random.standard_normal(extent).astype("float32")
    networks = of_integers(shape), network(shape, "NHWC")[0]
    for name, mod, values in zip(("int8_ms", "float32_ms"), networks, inputs, strict=True):
        with scheduled(), tvm.transform.PassContext(opt_level=3, config=OPTIONS):
            executor = graph_executor.GraphModule(relay.build(mod, cpu_target())["default"](tvm.cpu()))
        executor.set_input("x", values)
        executor.run()
        timers[name] = executor.module.time_evaluator("run", tvm.cpu(), number=3, repeat=1)
    times = [{name: timer().mean * 1e3 for name, timer in timers.items()} for _ in range(REPEATS)]
    found = {name: float(np.median([each[name] for each in times])) for name in timers}
    return {**found, "ratio": found["int8_ms"] / found["float32_ms"]}


def milliseconds(mod: tvm.IRModule, target: tvm.target.Target, kind: str, folder: Path, flops: int) -> float:
    with scheduled(), tvm.transform.PassContext(opt_level=3, config=OPTIONS):
        library = relay.build(mod, target)
    if kind == "opencl":
        path = folder / "kernel.so"
        library.export_library(str(path))
        library = tvm.runtime.load_module(str(path))
    device = tvm.device(kind, 0)
    executor = graph_executor.GraphModule(library["default"](device))
    shape = executor.get_input("x").shape
    executor.set_input("x", np.random.default_rng(1).standard_normal(shape).astype("float32"))
    executor.run()
    number = max(1, int(2e-3 / (flops / 100e9)))
    timer = executor.module.time_evaluator("run", device, number=number, repeat=REPEATS)
    return float(min(timer().results)) * 1e3


@click.command()
@click.argument("names", nargs=-1)
@click.option("--stock", is_flag=True, help="Also TVM's NCHWc convolution on the CPU.")
@click.option(
    "--integers", is_flag=True, help="The share of float32's time that 8-bit integers take on the CPU, as JSON."
)
@click.option("--processor", type=click.Choice(["cpu", "gpu", "both"]), default="both")
def main(names: tuple[str, ...], stock: bool, integers: bool, processor: str) -> None:
    """Prints one line for each convolution whose name begins with one of NAMES (default: all)."""
    cores = sorted(os.sched_getaffinity(0))
    if integers:
        os.sched_setaffinity(0, cores[:1])
        chosen = {name: shape for name, shape in SHAPES.items() if not names or name.startswith(names)}
        click.echo(json.dumps({name: share_of_integers(shape) for name, shape in chosen.items()}, indent=2))
        return
    if processor != "cpu":
        os.environ.update(opencl.environment())
        os.environ.setdefault("CODL_GPU_CORES", str(cores[-1]))
        plugin.load()
    os.sched_setaffinity(0, cores[:1])
    runs = {"cpu": (cpu_target(), "cpu", "NHWC"), "gpu": (gpu_target(), "opencl", "NHWC")}
    if processor != "both":
        runs = {processor: runs[processor]}
    if stock:
        plain = tvm.target.Target(f"llvm -mcpu={runs['cpu'][0].attrs['mcpu']}" if "cpu" in runs else "llvm")
        runs["stock cpu"] = (plain, "cpu", "NCHW")
    click.echo(f"{'':22}" + "".join(f"{name:>12} ms {'GFLOP/s':>8}" for name in runs))
    for name, shape in SHAPES.items():
        if names and not name.startswith(names):
            continue
        line = f"{name:22}"
        for target, kind, layout in runs.values():
            mod, flops = network(shape, layout)
            with tempfile.TemporaryDirectory() as folder:
                took = milliseconds(mod, target, kind, Path(folder), flops)
            line += f"{took:15.3f} {flops / took / 1e6:8.0f}"
        click.echo(line)


if __name__ == "__main__":
    run_command(main, "kernels.py")
