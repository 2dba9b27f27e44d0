"""Small libraries for arm64 phones: a network that is split between both processors, or is all on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from tvm import relay

from tests.runtime.partitions import Network, answer
from tvm_codl.build.library import build
from tvm_codl.device.generic import generic_profile
from tvm_codl.kernels.toolchain import toolchain

EXTENT, CHANNELS, ROW = 8, 16, 3
SHAPE = (1, EXTENT, EXTENT, CHANNELS)
WEIGHTS = np.random.default_rng(7).standard_normal((3, 3, CHANNELS, CHANNELS)).astype("float32") * 0.1


def sample(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype("float32")


def convolved(x: relay.Expr, padding: tuple[int, int, int, int] = (1, 1, 1, 1)) -> relay.Expr:
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    conv = relay.nn.conv2d(x, relay.const(WEIGHTS), kernel_size=(3, 3), padding=padding, channels=CHANNELS, **layout)
    return relay.nn.relu(conv)


def curved(x: relay.Expr) -> relay.Expr:
    """Calls the mathematical functions of the phone's own C library."""
    return relay.exp(relay.negative(x)) + relay.sigmoid(x) + relay.erf(x)


def split_network(other: str = "gpu") -> tvm.IRModule:
    """A convolution whose upper rows are the CPU's and whose lower rows are ``other``'s, and a function of the whole."""
    net, x = Network(), relay.var("x", shape=SHAPE)
    top = relay.strided_slice(x, [0], [ROW + 1], strides=[1], axes=[1])
    bottom = relay.strided_slice(x, [ROW - 1], [EXTENT], strides=[1], axes=[1])
    rows = (1, ROW + 1, EXTENT, CHANNELS), (1, EXTENT - ROW + 1, EXTENT, CHANNELS)
    upper = net.region("cpu", lambda p: convolved(p, (1, 1, 0, 1)), top, shapes=[rows[0]])
    lower = net.region(other, lambda p: convolved(p, (0, 1, 1, 1)), bottom, shapes=[rows[1]])
    whole = relay.concatenate([upper, lower], axis=1)
    return net.finish([x], net.region("cpu", curved, whole, shapes=[SHAPE]))


def wanted(value: np.ndarray) -> np.ndarray:
    x = relay.var("x", shape=SHAPE)
    return answer(tvm.IRModule.from_expr(relay.Function([x], curved(convolved(x)))), value)


def cross_library(platform: str, path: Path, other: str = "gpu") -> Path:
    """The network's library for any phone of a platform."""
    tools = toolchain(generic_profile(platform))
    with tools.scheduled():
        return build(split_network(other), tools.cpu, tools.gpu).export(path)
