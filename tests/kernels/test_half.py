"""Float16 on phones' GPUs: PoCL has none here, so the computes run on the CPU, and the kernels are only read."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay, te
from tvm.autotvm.task.space import FallbackConfigEntity

from tests.kernels.golden import source_of
from tvm_codl.kernels.gpu import Kind, usual
from tvm_codl.kernels.schedules import phone_conv2d, phone_products
from tvm_codl.kernels.target import cpu_target, gpu_target

KINDS: tuple[Kind, ...] = ("valhall", "adreno")


def phone(kind: Kind) -> tvm.target.Target:
    return gpu_target(cpu_target(mattr="+neon", mtriple="aarch64-linux-gnu"), usual(kind))


def operand(name: str, *shape: int) -> te.Tensor:
    return te.placeholder(shape, "float16", name)


def computed(result: te.Tensor, *operands: te.Tensor) -> tuple[list[np.ndarray], np.ndarray]:
    """Random float16 operands, and what ``result`` is on the CPU."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal([int(n) for n in each.shape]).astype("float16") for each in operands]
    function = tvm.build(te.create_schedule(result.op), [*operands, result], "llvm")
    out = tvm.nd.array(np.zeros([int(n) for n in result.shape], result.dtype))
    function(*map(tvm.nd.array, values), out)
    return [value.astype("float32") for value in values], out.numpy()


def check(got: np.ndarray, wanted: np.ndarray, depth: int) -> None:
    """Float16 rounds each product and the sums of a step; steps add up in float32."""
    assert got.dtype == np.float32
    assert np.abs(got - wanted).max() <= 2.0**-9 * 8 * np.sqrt(depth)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("channels_in", "channels", "window", "stride"), [(24, 20, 3, 1), (3, 16, 3, 2), (20, 6, 1, 1)]
)
def test_a_convolution_adds_up_steps_in_float32(
    kind: Kind, channels_in: int, channels: int, window: int, stride: int
) -> None:
    data, kernel = operand("data", 1, 9, 9, channels_in), operand("kernel", window, window, channels_in, channels)
    pad = window // 2
    with phone(kind):
        out = phone_conv2d.conv2d(FallbackConfigEntity(), data, kernel, (stride, stride), (pad,) * 4, (1, 1), "float32")
    (x, weights), got = computed(out, data, kernel)
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    rows = got.shape[1]
    taps = [
        x[:, i : i + stride * rows : stride, j : j + stride * rows : stride][:, :rows, :rows] @ weights[i, j]
        for i in range(window)
        for j in range(window)
    ]
    check(got, np.sum(taps, axis=0), window * window * channels_in)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_add_up_steps_in_float32(kind: Kind, transposed: bool) -> None:
    x, y = operand("x", 2, 5, 40), operand("y", *((2, 10, 40) if transposed else (2, 40, 10)))
    weight = operand("weight", 10, 40)
    rows = operand("rows", 5, 40)
    with phone(kind):
        dense = phone_products.dense(FallbackConfigEntity(), rows, weight, "float32", "tag")
        many = phone_products.batch_matmul(FallbackConfigEntity(), x, y, False, transposed, "float32", "tag")
    (a, b), got = computed(dense, rows, weight)
    check(got, a @ b.T, 40)
    (a, b), got = computed(many, x, y)
    check(got, a @ (b.swapaxes(1, 2) if transposed else b), 40)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_multiply_float16_and_keep_float32(kind: Kind) -> None:
    def var(name: str, *shape: int) -> relay.Var:
        return relay.var(name, shape=shape, dtype="float16")

    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_dtype": "float32", "padding": (1, 1)}
    body: Any = relay.nn.conv2d(
        var("x", 1, 28, 28, 64), var("w", 3, 3, 64, 64), channels=64, kernel_size=(3, 3), **layouts
    )
    source = source_of(relay.cast(body, "float16"), phone(kind), False)
    kernel = source[source.rindex("__kernel") :]
    assert "reqd_work_group_size" in kernel and "__local" not in source
    assert re.search(r"float4 acc\[\d+\];", kernel) and re.search(r"half4 partial\[1\];", kernel)
    # Conversions are of sums: one for each of a tile's vectors, in the loop and where results are stored.
    assert kernel.count("convert_float4") == len(re.findall(r"^ +acc\[\d+\] = \(acc", kernel, re.MULTILINE))
