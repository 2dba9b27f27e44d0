"""Convolutions of 8-bit integers with all that is fused behind them, and what NumPy makes of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relay

#: Added to a float32 up to 2**22 it rounds half to even: the sum's bits are its own, plus the integer.
ROUNDER = np.float32(1.5 * 2**23)
#: Added to results after rounding.
ZERO_POINT = 100


class Case(NamedTuple):
    """``pads``: top, left, bottom, right.  ``depthwise``: one channel each."""

    channels: int
    out: int
    size: tuple[int, int]
    window: int = 1
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    stride: int = 1
    dilation: int = 1
    depthwise: bool = False

    @property
    def weights(self) -> NDArray[np.int8]:
        shape = (self.window, self.window, self.channels, 1 if self.depthwise else self.out)
        return np.random.default_rng(self.out).integers(-128, 128, shape).astype("int8")

    @property
    def bias(self) -> NDArray[np.int32]:
        return np.random.default_rng(1).integers(-5000, 5000, self.out).astype("int32")

    @property
    def scales(self) -> NDArray[np.float32]:
        # Powers of two make results in the middle of two integers frequent.
        depth = self.window**2 * (1 if self.depthwise else self.channels)
        return (
            np.random.default_rng(2).choice([1.0, 1.25, 0.7], self.out) / 2 ** round(6 + np.log2(depth) / 2)
        ).astype("float32")

    def data(self, dtype: str) -> NDArray[np.generic]:
        limits = np.iinfo(dtype)
        shape = (1, *self.size, self.channels)
        return np.random.default_rng(3).integers(limits.min, limits.max + 1, shape).astype(dtype)

    def module(self, dtype: str) -> tvm.IRModule:
        x = relay.var("x", shape=(1, *self.size, self.channels), dtype=dtype)
        sums = relay.nn.conv2d(
            x,
            relay.const(self.weights),
            strides=(self.stride, self.stride),
            padding=self.pads,
            dilation=(self.dilation, self.dilation),
            groups=self.channels if self.depthwise else 1,
            channels=self.out,
            kernel_size=(self.window, self.window),
            data_layout="NHWC",
            kernel_layout="HWOI" if self.depthwise else "HWIO",
            out_dtype="int32",
        )
        return finished(x, relay.nn.bias_add(sums, relay.const(self.bias), axis=3), self.scales)

    def expected(self, dtype: str) -> NDArray[np.uint8]:
        top, left, bottom, right = self.pads
        data = np.pad(self.data(dtype).astype("int64"), ((0, 0), (top, bottom), (left, right), (0, 0)))
        reach = (self.window - 1) * self.dilation
        rows, columns = ((extent - reach - 1) // self.stride + 1 for extent in data.shape[1:3])
        sums = np.zeros((1, rows, columns, self.out), "int64")
        for y in range(self.window):
            for x in range(self.window):
                top, left = y * self.dilation, x * self.dilation
                part = data[:, top : top + (rows - 1) * self.stride + 1 : self.stride]
                part = part[:, :, left : left + (columns - 1) * self.stride + 1 : self.stride]
                weights = self.weights[y, x].astype("int64")
                sums += part * weights[:, 0] if self.depthwise else part @ weights
        return rounded(sums + self.bias, self.scales)


class Product(NamedTuple):
    """(``rows``, ``depth``) times (``units``, ``depth``)."""

    rows: int
    depth: int
    units: int

    @property
    def weights(self) -> NDArray[np.int8]:
        return np.random.default_rng(self.units).integers(-128, 128, (self.units, self.depth)).astype("int8")

    @property
    def scales(self) -> NDArray[np.float32]:
        return np.full(self.units, 2.0 ** -round(6 + np.log2(self.depth) / 2), "float32")

    def data(self, dtype: str) -> NDArray[np.generic]:
        limits = np.iinfo(dtype)
        return np.random.default_rng(3).integers(limits.min, limits.max + 1, (self.rows, self.depth)).astype(dtype)

    def module(self, dtype: str) -> tvm.IRModule:
        x = relay.var("x", shape=(self.rows, self.depth), dtype=dtype)
        return finished(x, relay.nn.dense(x, relay.const(self.weights), out_dtype="int32"), self.scales)

    def expected(self, dtype: str) -> NDArray[np.uint8]:
        return rounded(self.data(dtype).astype("int64") @ self.weights.T.astype("int64"), self.scales)


def finished(x: relay.Var, sums: relay.Expr, scales: NDArray[np.float32]) -> tvm.IRModule:
    """Sums of 32 bits as uint8: scaled, rounded half to even, clipped."""
    real = relay.clip(relay.cast(sums, "float32") * relay.const(scales), -float(ZERO_POINT), 255.0 - ZERO_POINT)
    bits = relay.reinterpret(real + relay.const(ROUNDER), "int32")
    whole = bits - relay.const(int(ROUNDER.view("int32")) - ZERO_POINT, "int32")
    return tvm.IRModule.from_expr(relay.Function([x], relay.cast(whole, "uint8")))


def rounded(sums: NDArray[np.int64], scales: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The same in NumPy."""
    whole = np.rint(sums.astype("int32").astype("float32") * scales) + ZERO_POINT
    return np.clip(whole, 0, 255).astype("uint8")
