"""Operands of convolutions and matrix products: their sizes, and zeros behind what does not fill vectors and tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from tvm import te, tir
from tvm.topi.nn.utils import get_pad_tuple
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.tiles.window import reach


class WindowSizes(msgspec.Struct, frozen=True):
    """Rows and columns of zeros before the input, and rows and columns of results."""

    top: int
    left: int
    rows: int
    columns: int

    @classmethod
    def of(
        cls,
        size: tuple[int, int],
        window: tuple[int, int],
        strides: tuple[int, int],
        padding: tuple[int, ...],
        dilation: tuple[int, int],
    ) -> WindowSizes:
        """Of a convolution whose input is ``size``, (height, width)."""
        high, wide = (reach(1, *axis) for axis in zip(strides, window, dilation, strict=True))
        top, left, bottom, right = get_pad_tuple(padding, (high, wide))
        rows = (size[0] + top + bottom - high) // strides[0] + 1
        columns = (size[1] + left + right - wide) // strides[1] + 1
        return cls(top, left, rows, columns)


class ProductSizes(msgspec.Struct, frozen=True):
    """(``batch_x``, ``m``, ``k``) times (``batch_y``, ``k``, ``n``); a batch of 1 is broadcast."""

    batch_x: int
    batch_y: int
    m: int
    n: int
    k: int

    @classmethod
    def of(cls, x: te.Tensor, y: te.Tensor, transpose_a: bool, transpose_b: bool) -> ProductSizes:
        """``x`` is (B, M, K), or (B, K, M) if ``transpose_a``; ``y`` is (B, K, N), or (B, N, K) if ``transpose_b``."""
        batch_x, *shape_x = get_const_tuple(x.shape)
        batch_y, *shape_y = get_const_tuple(y.shape)
        k, m = shape_x if transpose_a else shape_x[::-1]
        return cls(batch_x, batch_y, m, shape_y[0] if transpose_b else shape_y[1], k)

    @property
    def batch(self) -> int:
        return max(self.batch_x, self.batch_y)

    @property
    def flop(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    def in_x(self, b: Any) -> Any:
        """The matrix of ``x`` that result ``b`` is made of."""
        return b if self.batch_x > 1 else 0

    def in_y(self, b: Any) -> Any:
        """The matrix of ``y`` that result ``b`` is made of."""
        return b if self.batch_y > 1 else 0


def below(index: Any, whole: int, extent: int) -> list[Any]:
    """The condition that an axis of ``extent``, filled up to ``whole``, is not yet in the zeros; none where it has none."""
    return [index < extent] if whole > extent else []


def or_zero(value: Any, conditions: Sequence[Any]) -> Any:
    """``value`` where all ``conditions`` hold, else zero."""
    if not conditions:
        return value
    return tir.if_then_else(tir.all(*conditions), value, tir.const(0, value.dtype))


def within(*axes: tuple[Any, bool, int, int]) -> list[Any]:
    """For (index, whether it may be negative, its largest value, the extent): the conditions to be inside."""
    conditions = []
    for index, negative, largest, extent in axes:
        conditions += [index >= 0] if negative else []
        conditions += [index < extent] if largest >= extent else []
    return conditions


def lane_of(channel: Any, lanes: int, channels: int) -> Any:
    """The lane of ``channel``.  Where ``channels`` do not fill one vector, TVM must not see which of its lanes are used.

    It would cut the vector to those: instructions on integers compute them all, no image holds two or three, and for
    three PoCL calls functions.
    """
    return tir.Select(channel < channels, channel, lanes - 1) if channels < lanes else channel % lanes
