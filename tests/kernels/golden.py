"""The code of a fixed set of kernels: ``golden.json`` holds the digests that belong to a version of the kernels.

``python -m tests.kernels.golden`` writes that file, once :data:`tvm_codl.kernels.version.KERNELS` is raised.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.relay.backend.graph_executor_codegen import GraphExecutorCodegen

from tvm_codl.build.kernel import PASS_CONFIG
from tvm_codl.kernels import version
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.gpu import usual
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.target import is_gpu, with_images
from tvm_codl.kernels.workloads import DISABLED_PASSES

FILE = Path(__file__).with_suffix(".json")
_DECLARATION = re.compile(r"^__kernel [^{]*;\n", re.MULTILINE)
nn = relay.nn


def var(name: str, *shape: int) -> relay.Var:
    return relay.var(name, shape=shape)


def conv(size: int, channels: int, out: int, window: int, stride: int = 1, groups: int = 1) -> relay.Expr:
    """A convolution with bias and ReLU; its weights are no constants, so that packing them is a kernel too."""
    depthwise = groups > 1
    shape = (window, window, channels, 1) if depthwise else (window, window, channels, out)
    done = nn.conv2d(
        var("x", 1, size, size, channels),
        var("weights", *shape),
        strides=(stride, stride),
        padding=(window // 2,) * 4,
        groups=groups,
        channels=out,
        kernel_size=(window, window),
        data_layout="NHWC",
        kernel_layout="HWOI" if depthwise else "HWIO",
    )
    return nn.relu(nn.bias_add(done, var("bias", out), axis=3))


def filtered(size: int, channels: int, out: int) -> relay.Expr:
    """A convolution whose weights are constants, for Winograd's tiles."""
    weights = relay.const(np.ones((3, 3, channels, out), "float32"))
    done = nn.conv2d(
        var("x", 1, size, size, channels),
        weights,
        padding=(1, 1, 1, 1),
        channels=out,
        kernel_size=(3, 3),
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    return nn.relu(nn.bias_add(done, var("bias", out), axis=3))


def integers(size: int, channels: int, out: int, window: int, groups: int = 1) -> relay.Expr:
    """A convolution of 8-bit integers; its weights are no constants."""
    weights = (window, window, channels, 1 if groups > 1 else out)
    return nn.conv2d(
        relay.var("x", shape=(1, size, size, channels), dtype="uint8"),
        relay.var("weights", shape=weights, dtype="int8"),
        padding=(window // 2,) * 4,
        groups=groups,
        channels=out,
        kernel_size=(window, window),
        data_layout="NHWC",
        kernel_layout="HWOI" if groups > 1 else "HWIO",
        out_dtype="int32",
    )


X = var("x", 1, 15, 15, 24)
#: Some have a tuned record of their own, some a relative's, the others none.
BODIES: dict[str, relay.Expr] = {
    "conv2d 3x3": conv(56, 64, 64, 3),
    "conv2d 3x3, fewer channels than tuned": conv(56, 64, 48, 3),
    "conv2d 3x3, never tuned": conv(13, 20, 40, 3),
    "conv2d 9x9, 3 channels out": conv(64, 32, 3, 9),
    "conv2d 1x1, two blocks in local memory": conv(80, 256, 512, 1),
    "conv2d 1x1": conv(56, 64, 256, 1),
    "Winograd": filtered(28, 64, 64),
    "Winograd in groups of rows": filtered(56, 64, 64),
    "conv2d 3x3 strided": conv(56, 64, 128, 3, 2),
    "depthwise": conv(40, 96, 96, 3, groups=96),
    "depthwise strided, never tuned": conv(17, 32, 32, 3, 2, groups=32),
    "dense": nn.dense(var("x", 1, 512), var("weights", 1000, 512)),
    "dense, 2 channels out": nn.dense(var("x", 70, 200), var("weights", 2, 200)),
    "conv2d of integers": integers(13, 20, 40, 3),
    "conv2d of integers, 3 channels": integers(23, 3, 16, 7),
    "depthwise of integers": integers(17, 32, 32, 3, groups=32),
    "dense of integers": nn.dense(
        relay.var("x", shape=(1, 512), dtype="uint8"),
        relay.var("weights", shape=(1000, 512), dtype="int8"),
        out_dtype="int32",
    ),
    "batch_matmul": nn.batch_matmul(var("x", 12, 128, 64), var("y", 12, 128, 64)),
    "max_pool2d": nn.max_pool2d(X, (3, 3), (2, 2), padding=(1, 1, 1, 1), layout="NHWC"),
    "max_pool2d of 42 channels": nn.max_pool2d(relay.var("y", shape=(1, 8, 8, 42)), (2, 2), (2, 2), layout="NHWC"),
    "max_pool2d of integers": nn.max_pool2d(
        relay.var("x", shape=(1, 15, 15, 32), dtype="uint8"), (3, 3), (2, 2), padding=(1, 1, 1, 1), layout="NHWC"
    ),
    "global_avg_pool2d": nn.global_avg_pool2d(X, layout="NHWC"),
    "pad": nn.pad(X, ((0, 0), (1, 1), (2, 2), (0, 0))),
    "element-wise": relay.sigmoid(X) * X + relay.exp(var("y", 1, 15, 15, 24)),
    "concatenate": relay.concatenate([X, var("y", 1, 15, 15, 8)], 3),
    "softmax": nn.softmax(var("x", 12, 100), -1),
    "layout": relay.layout_transform(X, "NHWC", "NCHW"),
}


#: Targets on which the other kernels are those of another target.
ONLY = {
    "x86 CPU of 16 vectors": ("conv2d", "dense"),
    "GPU with images": ("conv2d", "dense"),
    "GPU with local memory": ("conv2d", "dense", "batch_matmul"),
}


def targets() -> dict[str, tvm.target.Target]:
    """None depends on the machine that runs the tests."""
    wide = cpu_target("skylake-avx512", mtriple="x86_64-linux-gnu")
    phone = cpu_target(mattr="+neon", mtriple="aarch64-linux-gnu")
    real = gpu_target(phone, usual("mobile"), image_side=16384)
    played = gpu_target(wide)
    return {
        "x86 CPU": wide,
        "x86 CPU of 16 vectors": cpu_target("haswell", mtriple="x86_64-linux-gnu"),
        "Arm CPU": phone,
        "GPU": real,
        "GPU with images": with_images(real),
        "GPU with local memory": gpu_target(phone, usual("local")),
        "played GPU": played,
    }


def digests(names: Iterable[str] = BODIES, on: Iterable[str] = ()) -> dict[str, str]:
    """By kernel, target and where its configuration comes from; ``on`` chooses targets, by default all."""
    found = {}
    for place, target in targets().items():
        for shipped in (True, False):
            # The shipped records are for vectors of 16: on narrower ones they change nothing.
            if (on and place not in on) or (shipped and "v16" not in target.keys):
                continue
            for name in names:
                if not name.startswith(ONLY.get(place, "")):
                    continue
                code = source_of(BODIES[name], target, shipped)
                records = "shipped records" if shipped else "estimates"
                found[f"{name}, {place}, {records}"] = hashlib.sha256(code.encode()).hexdigest()[:16]
    return found


def source_of(body: relay.Expr, target: tvm.target.Target, shipped: bool) -> str:
    """OpenCL C for a GPU; the lowered loops for a CPU, as LLVM gets them."""
    module: Any = relay.transform.InferType()(tvm.IRModule.from_expr(body))
    with (
        scheduled(shipped=shipped),
        tvm.transform.PassContext(opt_level=3, config=PASS_CONFIG, disabled_pass=DISABLED_PASSES),
    ):
        if is_gpu(target):
            (kernels,) = relay.build(module, target).get_lib().imported_modules
            # The order of kernels, and of their declarations, changes from build to build.
            return "".join(sorted(_DECLARATION.sub("", kernels.get_source()).split("// Function: ")))
        target = target.with_host(target)
        optimized, _ = relay.optimize(module, target)
        _, lowered, _ = GraphExecutorCodegen(None, target).codegen(optimized, optimized["main"])
        return "".join(str(part.script()) for part in lowered.values())


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The kernels of ``now`` whose code is not that of ``before``."""
    return [name for name, digest in now.items() if before.get(name) != digest]


def golden() -> tuple[int, dict[str, str]]:
    """The version in the file, and its digests."""
    value = json.loads(FILE.read_text("utf-8"))
    return int(value["version"]), dict(value["digests"])


def main() -> int:
    now = digests()
    if FILE.exists():
        number, before = golden()
        names = [name for name in changed(before, now) if name in before]
        if names and number == version.KERNELS:
            print(f"other code: {'; '.join(names)}\nraise KERNELS in {version.__file__} first", file=sys.stderr)
            return 1
    FILE.write_text(json.dumps({"version": version.KERNELS, "digests": now}, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
