"""Convolutions and products of 8-bit integers as Relay: which ones are ours, and data of the type that a CPU multiplies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relay

from tvm_codl.kernels.target import dot_on


def of_integers(data: Any, weights: Any, out: Any) -> bool:
    """Whether 8-bit values make sums of 32 bits; from the types, or tensors, of the operands and the result."""
    return data.dtype in ("int8", "uint8") and weights.dtype == "int8" and out.dtype == "int32"


def shifted_conv2d(attrs: Mapping[str, Any], inputs: Any, dtype: str) -> relay.Expr | None:
    """A convolution in NHWC whose data is of the type that the CPU's instruction reads; None where it is already.

    Values get 128 more or less, zeros around them too; what that adds to the sums depends on the weights only.
    """
    shift = _shift(dtype)
    if not shift:
        return None
    data, weights = inputs
    top, left, bottom, right = (int(n) for n in attrs["padding"])
    around = ((0, 0), (top, bottom), (left, right), (0, 0))
    data = _shifted(data, shift)
    if any((top, left, bottom, right)):
        data = relay.nn.pad(data, around, relay.const(shift, _READS[shift]))
    done = relay.nn.conv2d(data, weights, **{**attrs, "padding": (0, 0, 0, 0)})
    axes = [i for i, letter in enumerate(str(attrs["kernel_layout"])) if letter in "HWI"]
    return done - _added(weights, axes, shift)


def _added(weights: relay.Expr, axes: list[int], shift: int) -> relay.Expr:
    """What the shift adds to each sum; folded where weights are constants."""
    return relay.sum(relay.cast(weights, "int32"), axes) * relay.const(shift, "int32")


def _shift(dtype: str) -> int:
    dot = dot_on(dtype)
    return dot.shift if dot.reads not in (dtype, "int16") else 0


#: The type of values that were shifted so.
_READS = {128: "uint8", -128: "int8"}


def _shifted(data: relay.Expr, shift: int) -> relay.Expr:
    return relay.cast(relay.cast(data, "int16") + relay.const(shift, "int16"), _READS[shift])
