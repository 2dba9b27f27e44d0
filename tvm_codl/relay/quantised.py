"""Quantised tensors in Relay: which numbers their integers stand for.

Frontends write ``qnn.quantize`` and ``qnn.dequantize``.  Passes move these two through what only moves values
(:mod:`.stored_integers`), put products of integers between them (:mod:`.integer_products`), and then write them as plain
arithmetic (:mod:`.rounding`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relay

from tvm_codl.relay.calls import as_constant, is_call, value_of
from tvm_codl.relay.walk import children

QUANTISE, DEQUANTISE = "qnn.quantize", "qnn.dequantize"
EIGHT_BITS = ("int8", "uint8")


@dataclass(frozen=True)
class Scheme:
    """The integer ``q`` stands for ``(q - zero) · scale``: float32 and int32 arrays of one value or, both, one for each index
    of ``axis``."""

    scale: np.ndarray
    zero: np.ndarray
    axis: int = 0

    @property
    def is_one(self) -> bool:
        """Whether one scale and one zero point serve the whole tensor."""
        return self.scale.size == 1 and self.zero.size == 1

    def equals(self, other: Scheme) -> bool:
        return (
            self.is_one
            and other.is_one
            and self.scale.item() == other.scale.item()
            and self.zero.item() == other.zero.item()
        )

    def along(self, value: np.ndarray, rank: int) -> np.ndarray:
        """``scale`` or ``zero`` in a shape that broadcasts to tensors of this scheme and rank."""
        if value.size == 1:
            return value.reshape(())
        return value.reshape([-1 if axis == self.axis % rank else 1 for axis in range(rank)])


def scheme_of(expr: relay.Expr) -> Scheme | None:
    """Of a call that quantises or dequantises; None for any other, and where the scale is computed."""
    if not is_call(expr, QUANTISE, DEQUANTISE):
        return None
    scale, zero = (value_of(arg) for arg in expr.args[1:])
    if scale is None or zero is None:
        return None
    return Scheme(
        np.asarray(scale, np.float32).reshape(-1), np.asarray(zero, np.int32).reshape(-1), int(expr.attrs.axis)
    )


def dtype_of(expr: relay.Expr) -> str:
    """Of an expression, typed or on typed arguments of the same type."""
    while True:
        if is_call(expr, QUANTISE, "nn.conv2d", "nn.dense") and str(expr.attrs.out_dtype):
            return str(expr.attrs.out_dtype)
        if is_call(expr, "cast"):
            return str(expr.attrs.dtype)
        try:
            return str(expr.checked_type.dtype)
        except ValueError:  # made in this pass
            expr = children(expr)[0]


def dequantise(data: relay.Expr, scheme: Scheme) -> relay.Call:
    """The float32 numbers that integers stand for."""
    scale, zero = (v.reshape(()) if v.size == 1 else v for v in (scheme.scale, scheme.zero))
    return relay.qnn.op.dequantize(data, as_constant(scale), as_constant(zero), axis=scheme.axis)


def quantise(data: relay.Expr, scheme: Scheme, dtype: str) -> relay.Call:
    """The integers that stand for float32 numbers; halves go to even ones."""
    scale, zero = (v.reshape(()) if v.size == 1 else v for v in (scheme.scale, scheme.zero))
    return relay.qnn.op.quantize(data, as_constant(scale), as_constant(zero), axis=scheme.axis, out_dtype=dtype)
