"""Our kernels on both processors against stock TVM: windows, strides, paddings, odd extents, everything else."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.runtime.schedule_cases import conv, idle, module, ours, samples, stock, weights
from tvm_codl.build.launches import Launch
from tvm_codl.kernels.gpu import Kind, usual

pytestmark = pytest.mark.usefixtures("opencl")
nn = relay.nn

AROUND: dict[str, Any] = {"strides": (2, 2), "padding": (1, 1, 1, 1), "layout": "NHWC"}


def bytewise(x: relay.Expr, function: Callable[[relay.Expr], relay.Expr]) -> relay.Expr:
    """``function`` of bytes, in a kernel of its own."""
    stop = relay.annotation.stop_fusion
    whole = relay.cast(relay.clip(x * relay.const(40.0) + relay.const(128.0), 0.0, 255.0), "uint8")
    return relay.cast(stop(function(stop(whole))), "float32")


CONVOLUTIONS = {
    "3x3": conv(16, 32, 14, 14, 3, pad=1),
    "no epilogue rows": conv(5, 12, 9, 13, 3, pad=1),
    "stem": conv(3, 64, 23, 23, 7, stride=2, pad=3),
    "pointwise strided": conv(24, 32, 14, 14, 1, stride=2),
    "dilated": conv(8, 16, 15, 15, 3, dilation=2, pad=2),
    "width 7": conv(32, 48, 7, 7, 3, pad=1),
    "width 13": conv(12, 24, 13, 13, 1),
    "49 positions as one row": conv(32, 48, 7, 7, 1),
    "prime width": conv(8, 16, 6, 29, 3, pad=1),
    "one column": conv(32, 64, 1, 1, 1),
    "24 channels packed": conv(24, 24, 12, 12, 3, pad=1),
    "40 channels packed": conv(16, 40, 11, 11, 1),
    "20 channels packed": conv(8, 20, 10, 10, 3, pad=1),
    "12 channels": conv(16, 12, 10, 10, 3),
    "5 channels": conv(3, 5, 7, 7, 3, pad=1, stride=2),
    "3 channels at many positions": conv(32, 3, 20, 20, 9, pad=4),
    "3 channels at fewer than their depth": conv(32, 3, 9, 9, 5),
    "14 channels": conv(8, 14, 9, 9, 1),
    "19 channels": conv(12, 19, 11, 11, 3, pad=1),
    "one row": conv(16, 16, 3, 10, 3),
    "Winograd": conv(64, 64, 28, 28, 3, pad=1),
    "Winograd without padding": conv(32, 48, 11, 27, 3),
    "Winograd in groups of rows": conv(16, 64, 60, 61, 3, pad=1),
    "Winograd in groups that do not divide the rows": conv(32, 64, 50, 52, 3, pad=1),
    "Winograd, small tiles": conv(256, 256, 14, 14, 3, pad=1),
    "depthwise": conv(32, 32, 14, 14, 3, pad=1, groups=32),
    "depthwise strided": conv(24, 24, 13, 13, 5, pad=2, stride=2, groups=24),
    "depthwise 12": conv(12, 12, 20, 20, 3, pad=1, groups=12),
    "depthwise prime": conv(16, 16, 9, 17, 3, groups=16),
    "depthwise multiplied": conv(6, 12, 9, 9, 3, pad=1, groups=6),
    "grouped": conv(16, 32, 9, 9, 3, pad=1, groups=4),
}
ARITHMETIC = {
    "bias and residual": module(lambda x, y: nn.relu(x + y), (1, 9, 9, 24), (1, 9, 9, 24)),
    "squeeze and excite": module(lambda x, y: x * relay.sigmoid(y), (1, 9, 9, 24), (1, 1, 1, 24)),
    "hard swish": module(lambda x: x * relay.clip(x + relay.const(3.0), 0.0, 6.0), (1, 9, 9, 3)),
    "gelu": module(lambda x: x * (relay.erf(x) + relay.const(1.0)), (1, 9, 9, 24)),
    "leaky": module(lambda x: nn.leaky_relu(x, 0.1), (1, 9, 9, 32)),
    "cast": module(lambda x: relay.cast(relay.cast(x * relay.const(9.0), "int32"), "float32"), (1, 9, 32)),
    "where": module(lambda x: relay.where(relay.greater(x, relay.const(0.5)), x, x * x), (1, 9, 32)),
    "layer norm": module(lambda x: nn.layer_norm(x, weights(48), weights(48)), (1, 10, 48)),
    "softmax": module(lambda x: nn.softmax(x, axis=-1), (1, 10, 97)),
    "softmax inside": module(lambda x: nn.softmax(x, axis=1), (1, 10, 16, 32)),
    "sum of all": module(lambda x: relay.sum(x), (3, 4)),
    "row sums": module(lambda x: relay.sum(x, axis=-1), (4, 64)),
    "argmax": module(lambda x: relay.argmax(x, axis=1), (4, 33)),
}
MOVES = {
    "concat channels": module(lambda x, y: nn.relu(relay.concatenate([x, y], 3)), (1, 9, 9, 24), (1, 9, 9, 12)),
    "concat rows": module(lambda x, y: relay.concatenate([x, y], 1), (1, 9, 9, 24), (1, 5, 9, 24)),
    "slice": module(lambda x: relay.strided_slice(x, [0, 2, 1, 8], [1, 9, 7, 32], [1, 2, 1, 1]), (1, 9, 9, 32)),
    "slice then add": module(
        lambda x: nn.relu(relay.strided_slice(x, [0, 0, 0, 0], [1, 9, 9, 19]) + weights(19)), (1, 9, 9, 32)
    ),
    "pad": module(lambda x: nn.pad(x, ((0, 0), (1, 1), (2, 1), (0, 8))), (1, 9, 9, 32)),
    "transpose": module(lambda x: relay.transpose(x, (0, 3, 1, 2)), (1, 9, 9, 24)),
    "nearest": module(lambda x: nn.upsampling(x, 2, 2, layout="NHWC"), (1, 9, 9, 24)),
    "linear": module(lambda x: relay.image.resize2d(x, (20, 20), layout="NHWC", method="linear"), (1, 9, 9, 24)),
    "max pool": module(
        lambda x: nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1, 1, 1), layout="NHWC"), (1, 17, 17, 32)
    ),
    "max pool of 42 channels": module(
        lambda x: nn.relu(nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1, 1, 1), layout="NHWC")), (1, 17, 17, 42)
    ),
    "max pool of bytes": module(lambda x: bytewise(x, lambda y: nn.max_pool2d(y, (3, 3), **AROUND)), (1, 17, 17, 32)),
    "max pool of few bytes": module(
        lambda x: bytewise(x, lambda y: nn.max_pool2d(y, (3, 3), **AROUND)), (1, 17, 17, 12)
    ),
    "concat and pad of bytes": module(
        lambda x, y: bytewise(
            relay.concatenate([x, y], 3),
            lambda z: nn.pad(relay.concatenate([z, z], 3), ((0, 0), (1, 1), (2, 1), (0, 0))),
        ),
        (1, 9, 9, 24),
        (1, 9, 9, 8),
    ),
    "average pool": module(
        lambda x: nn.relu(nn.avg_pool2d(x, (3, 3), (1, 1), padding=(1, 1, 1, 1), layout="NHWC")), (1, 17, 17, 24)
    ),
    "global pool": module(lambda x: nn.global_avg_pool2d(x, layout="NHWC"), (1, 7, 7, 32)),
    "global maximum": module(lambda x: nn.global_max_pool2d(x, layout="NHWC"), (1, 7, 7, 12)),
    "adaptive pool": module(lambda x: nn.adaptive_avg_pool2d(x, (3, 3), layout="NHWC"), (1, 7, 9, 32)),
    "mean": module(lambda x: relay.mean(x, axis=[1, 2], keepdims=True), (1, 7, 9, 32)),
}
PRODUCTS = {
    "dense": module(lambda x: nn.relu(nn.bias_add(nn.dense(x, weights(40, 64)), weights(40))), (1, 64)),
    "dense rows": module(lambda x: nn.dense(x, weights(33, 30)), (17, 30)),
    "batch": module(lambda x, y: nn.batch_matmul(x, y), (3, 17, 20), (3, 24, 20)),
    "batch broadcast": module(lambda x, y: nn.batch_matmul(x, y, transpose_b=False), (3, 17, 20), (1, 20, 24)),
    "transposed": module(lambda x: nn.conv2d_transpose(x, weights(8, 4, 2, 2), strides=(2, 2)), (1, 8, 5, 5)),
    "channels first": module(lambda x: nn.conv2d(x, weights(4, 8, 3, 3), padding=(1, 1)), (1, 8, 5, 5)),
    "depthwise first": module(lambda x: nn.conv2d(x, weights(8, 1, 3, 3), padding=(1, 1), groups=8), (1, 8, 5, 5)),
}
CASES = {**CONVOLUTIONS, **ARITHMETIC, **MOVES, **PRODUCTS}
#: Where groups have tails, or where there is too little for one.
GROUPED = {
    "several groups and a tail": module(lambda x: nn.relu(x), (2, 37, 41, 3)),
    "batches of a pool": module(lambda x: nn.avg_pool2d(x, (2, 3), (2, 2), layout="NHWC"), (3, 21, 30, 20)),
    "pool of few channels": module(
        lambda x: nn.max_pool2d(x, (3, 3), (1, 1), padding=(1, 1, 1, 1), layout="NHWC"), (2, 19, 23, 5)
    ),
    "integers": module(
        lambda x: relay.floor_mod(relay.cast(x * relay.const(9.0), "int32"), relay.const(5)), (3, 11, 17)
    ),
    "bits": module(lambda x, y: relay.logical_and(relay.less(x, y), relay.less(x, x * x)), (3, 11, 17), (3, 11, 17)),
    "scalars": module(lambda x, y: x * y + relay.const(2.0), (), ()),
    "any": module(lambda x: relay.any(relay.greater(x, relay.const(2.0)), axis=1), (70, 40)),
    "argmin of rows": module(lambda x: relay.argmin(x, axis=-1), (130, 33)),
    "argmax of columns": module(lambda x: relay.argmax(x, axis=1), (2, 33, 70)),
    "mean of many rows": module(lambda x: relay.mean(x, axis=-1, keepdims=True), (3, 700, 33)),
    "mean of a few long rows": module(lambda x: relay.mean(x, axis=-1), (3, 4096)),
    "variance": module(lambda x: relay.variance(x, axis=-1, keepdims=True), (5, 516)),
    "least of odd rows": module(lambda x: relay.min(x, axis=-1), (7, 1023)),
    "sum of everything": module(lambda x: relay.sum(x * x), (60, 70)),
    "sum over rows": module(lambda x: relay.sum(x, axis=0), (300, 12)),
    "wide global pool": module(lambda x: nn.relu(nn.global_avg_pool2d(x, layout="NHWC")), (2, 13, 11, 132)),
    "mean of a large image": module(lambda x: relay.mean(x, axis=[1, 2], keepdims=True), (2, 131, 127, 12)),
    "maximum of a large image": module(lambda x: relay.max(x, axis=[1, 2]), (1, 150, 121, 3)),
    "softmax of images": module(lambda x: nn.softmax(x, axis=-1), (2, 3, 17, 64)),
    "softmax of long rows": module(lambda x: nn.softmax(x, axis=-1), (3, 1001)),
    "softmax of one row": module(lambda x: nn.softmax(x, axis=-1), (1, 4000)),
    "logarithmic softmax": module(lambda x: nn.log_softmax(x, axis=-1), (9, 130)),
    "softmax of short rows": module(lambda x: nn.softmax(x, axis=-1), (2, 500, 2)),
    "concat of three": module(lambda x, y: relay.concatenate([x, y, x], 3), (2, 7, 9, 20), (2, 7, 9, 7)),
    "cubic": module(lambda x: relay.image.resize2d(x, (15, 21), layout="NHWC", method="cubic"), (2, 9, 11, 6)),
    "transposed with strides": module(
        lambda x: nn.conv2d_transpose(x, weights(6, 5, 3, 3), strides=(2, 2), padding=(1, 1)), (2, 6, 9, 7)
    ),
    "mirrored": module(lambda x: nn.mirror_pad(x, ((0, 0), (2, 2), (3, 3), (0, 0))), (2, 9, 11, 5)),
    "channels first of rows": module(lambda x: relay.transpose(x, (0, 2, 3, 1)), (2, 24, 17, 19)),
    "instance norm": module(lambda x: nn.instance_norm(x, weights(12), weights(12), axis=3), (1, 18, 22, 12)),
    "depthwise of many strips": conv(48, 48, 23, 45, 3, pad=1, groups=48),
    "depthwise of a far dilated window": conv(32, 32, 30, 30, 3, pad=6, dilation=6, groups=32),
    "depthwise dilated": conv(20, 20, 17, 19, 3, pad=2, dilation=2, groups=20),
}


def _case(name: str) -> tvm.IRModule:
    return CASES[name] if name in CASES else GROUPED[name]


@cache
def expected(name: str) -> list[np.ndarray]:
    return stock(_case(name))


def check(name: str, got: np.ndarray, wanted: np.ndarray) -> None:
    """Winograd's sums, longer than the others', round by so much of the largest value."""
    atol = 1e-5 * max(1.0, np.abs(wanted).max()) if name.startswith("Winograd") else 1e-5
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("processor", ["cpu", "gpu"])
@pytest.mark.parametrize("name", CASES)
def test_kernel_gives_stock_answer(name: str, processor: str, library_path: Path) -> None:
    for got, wanted in zip(ours(CASES[name], processor, library_path), expected(name), strict=True):
        check(name, got, wanted)


@pytest.mark.parametrize("kind", ["mobile", "local"])
@pytest.mark.parametrize("name", [*CASES, *GROUPED])
def test_kernel_of_whole_groups_gives_stock_answer(name: str, kind: Kind, library_path: Path) -> None:
    launches: dict[str, list[Launch]] = {}
    answer = ours(_case(name), "gpu", library_path, 4, kind, launches)
    for got, wanted in zip(answer, expected(name), strict=True):
        check(name, got, wanted)
    assert launches and not [launch for each in launches.values() for launch in each if idle(launch, usual(kind))]


@pytest.mark.parametrize(
    "name",
    [
        "3x3",
        "prime width",
        "24 channels packed",
        "Winograd",
        "depthwise",
        "3 channels at many positions",
        "dense rows",
        "batch broadcast",
    ],
)
@pytest.mark.parametrize("lanes", [4, 8])
def test_narrower_vectors_give_the_same(name: str, lanes: int, library_path: Path) -> None:
    check(name, ours(CASES[name], "gpu", library_path, lanes)[0], expected(name)[0])


def test_convolution_against_numpy(library_path: Path) -> None:
    """Not only against TVM: a 3×3 window with padding, written out."""
    mod = CONVOLUTIONS["3x3"]
    x, w, b = samples(mod)[0], weights(3, 3, 16, 32).data.numpy(), weights(32).data.numpy()
    around = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = sum(around[:, i : i + 14, j : j + 14] @ w[i, j] for i in range(3) for j in range(3)) + b
    np.testing.assert_allclose(ours(mod, "cpu", library_path)[0], np.maximum(wanted, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "function, exact",
    [
        (relay.exp, np.exp),
        (relay.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
        (relay.tanh, np.tanh),
        (relay.erf, np.vectorize(math.erf)),
    ],
)
def test_exponentials_of_the_cpu_are_exact_to_single_precision(
    function: Callable[[relay.Expr], relay.Expr], exact: Callable[[np.ndarray], np.ndarray], library_path: Path
) -> None:
    x = np.linspace(-80, 80, 4099, dtype="float32")
    mod = tvm.IRModule.from_expr(function(relay.const(x) + relay.var("x0", shape=(1,))))
    got = ours(relay.transform.InferType()(mod), "cpu", library_path)[0]
    moved = x + samples(relay.transform.InferType()(mod))[0]
    np.testing.assert_allclose(got, exact(moved.astype("float64")), rtol=1e-6)


@pytest.mark.parametrize("function", [relay.exp, relay.sigmoid, relay.nn.softmax])
def test_exponentials_of_the_cpu_have_normal_results(
    function: Callable[[relay.Expr], relay.Expr], library_path: Path
) -> None:
    """Others take a processor a hundred times as long: a network's mask of very sure pixels did."""
    x = np.concatenate([np.linspace(-300, 88, 999, dtype="float32"), np.full(9, 88, "float32")])[None]
    mod = relay.transform.InferType()(
        tvm.IRModule.from_expr(function(relay.const(x) + relay.const(0.0) * relay.var("x0", shape=(1, 1))))
    )
    got = ours(mod, "cpu", library_path)[0]
    assert got.min() >= np.finfo("float32").tiny
    exact = np.exp(x - 88 if function is relay.nn.softmax else x, dtype="float64")
    wanted = {relay.exp: exact, relay.sigmoid: 1 / (1 + 1 / exact), relay.nn.softmax: exact / exact.sum()}[function]
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-30)
