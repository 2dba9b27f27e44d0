"""Convolutions and dense layers on quantised tensors become products of integers.

``conv2d(dequantise(x; s, z), dequantise(w; t))`` is ``dequantise(conv2d(x, w) - z·Σw; s·t)``, its sums in int32: what the
kernels of ``kernels/`` compute is ``conv2d`` or ``dense`` of uint8 or int8 data and int8 weights, plus a constant for each
channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from tvm import relay

from tvm_codl.relay.calls import Site, as_constant, call_pass, is_call, shape_of, value_of
from tvm_codl.relay.quantised import DEQUANTISE, EIGHT_BITS, Scheme, dequantise, dtype_of, scheme_of

#: Largest relative difference of a bias's scale from that of the products it is added to.
SAME_SCALE = 1e-3


@dataclass(frozen=True)
class _Weights:
    """int8 weights with zero point 0, and their scales."""

    value: np.ndarray
    scale: np.ndarray

    def constants(self, axis: int, zero: int) -> np.ndarray:
        """-z·Σw for each index of ``axis``, where the outputs are."""
        sums = self.value.astype(np.int64).sum(axis=tuple(i for i in range(self.value.ndim) if i != axis))
        return (-zero * sums).astype(np.int32)


def _quantised(expr: relay.Expr) -> tuple[relay.Expr, Scheme] | None:
    """Integers of eight bits and what they stand for."""
    scheme = scheme_of(expr) if is_call(expr, DEQUANTISE) else None
    if scheme is None or not scheme.is_one or dtype_of(expr.args[0]) not in EIGHT_BITS:
        return None
    return expr.args[0], scheme


def _weights(expr: relay.Expr, axis: int) -> _Weights | None:
    """None where they are computed, or do not fit 8 bits with zero point 0, or have scales along another axis."""
    scheme = scheme_of(expr) if is_call(expr, DEQUANTISE) else None
    value = value_of(expr.args[0]) if scheme is not None else None
    if scheme is None or value is None or not (scheme.is_one or scheme.axis % value.ndim == axis):
        return None
    centred = value.astype(np.int32) - scheme.along(scheme.zero, value.ndim)
    if centred.min(initial=0) < -128 or centred.max(initial=0) > 127:
        return None
    return _Weights(centred.astype(np.int8), scheme.scale)


def _sums(product: relay.Expr, constants: np.ndarray, scheme: Scheme, rank: int) -> relay.Expr:
    """What a product stands for, with a constant added to each channel of ``scheme.axis``."""
    if constants.any():
        product = relay.add(product, as_constant(_per_channel(constants, scheme.axis, rank)))
    return dequantise(product, scheme)


def _per_channel(value: np.ndarray, axis: int, rank: int) -> np.ndarray:
    return value.reshape([-1, *[1] * (rank - 1 - axis)])


def _conv2d(site: Site) -> relay.Expr | None:
    attrs = site.call.attrs
    layout, kernel_layout = str(attrs.data_layout), str(attrs.kernel_layout)
    data = _quantised(site.args[0])
    if data is None or len(kernel_layout) != 4 or len(layout) != 4:
        return None
    channels, outputs = layout.index("C"), kernel_layout.index("O")
    weights = _weights(site.args[1], outputs)
    if weights is None or weights.value.shape[outputs] != site.shape[channels]:
        return None
    (integers, scheme), padding = data, [int(p) for p in attrs.padding]
    zero = int(scheme.zero.item())
    if zero and any(padding):
        top, left, bottom, right = padding
        widths = {"H": (top, bottom), "W": (left, right)}
        value = relay.const(zero, dtype_of(integers))
        integers = relay.nn.pad(integers, [widths.get(letter, (0, 0)) for letter in layout], value)
        padding = [0, 0, 0, 0]
    product = relay.nn.conv2d(
        integers,
        as_constant(weights.value),
        strides=attrs.strides,
        padding=padding,
        dilation=attrs.dilation,
        groups=attrs.groups,
        channels=attrs.channels,
        kernel_size=attrs.kernel_size,
        data_layout=layout,
        kernel_layout=kernel_layout,
        out_dtype="int32",
    )
    made = Scheme(scheme.scale * weights.scale, np.zeros(1, np.int32), channels)
    return _sums(product, weights.constants(outputs, zero), made, 4)


def _dense(site: Site) -> relay.Expr | None:
    data, weights = _quantised(site.args[0]), _weights(site.args[1], 0)
    if data is None or weights is None:
        return None
    integers, scheme = data
    product = relay.nn.dense(integers, as_constant(weights.value), site.call.attrs.units, out_dtype="int32")
    rank = len(site.shape)
    made = Scheme(scheme.scale * weights.scale, np.zeros(1, np.int32), rank - 1)
    return _sums(product, weights.constants(0, int(scheme.zero.item())), made, rank)


def _add_bias(site: Site) -> relay.Expr | None:
    """A bias in units of the products is added to them, in int32."""
    sums, bias = (scheme_of(arg) if is_call(arg, DEQUANTISE) else None for arg in site.args)
    value = value_of(site.args[1].args[0]) if bias is not None else None
    if sums is None or bias is None or value is None or value.dtype != np.int32 or bias.zero.any():
        return None
    integers, rank = site.args[0].args[0], len(site.shape)
    if dtype_of(integers) != "int32" or sums.scale.size not in (1, value.size) or site.uses[site.args[0]] > 1:
        return None
    if not np.allclose(bias.scale, sums.scale, rtol=SAME_SCALE, atol=0):
        return None
    axis = int(site.call.attrs.axis) % rank if site.op == "nn.bias_add" else rank - value.ndim
    if value.size != value.shape[0] or axis != sums.axis % rank or value.size != site.shape[axis]:
        return None
    constants = _per_channel(value.reshape(-1), axis, rank)
    if is_call(integers, "add") and (inner := value_of(integers.args[1])) is not None:
        integers, constants = integers.args[0], constants + inner
    return dequantise(relay.add(integers, as_constant(constants)), sums)


def _mean(site: Site) -> relay.Expr | None:
    """The sum of integers, as int32: a mean is a scale."""
    data = _quantised(site.args[0])
    if data is None:
        return None
    integers, scheme = data
    shape, attrs = shape_of(site.call.args[0]), site.call.attrs
    if site.op == "mean":
        if attrs.exclude or attrs.axis is None:
            return None
        axes, keep = [int(axis) % len(shape) for axis in attrs.axis], bool(attrs.keepdims)
    else:
        axes, keep = [axis for axis, letter in enumerate(str(attrs.layout)) if letter in "HW"], True
    count = prod(shape[axis] for axis in axes)
    total = relay.sum(relay.cast(integers, "int32"), axes, keepdims=keep)
    return dequantise(total, Scheme(scheme.scale / np.float32(count), scheme.zero * np.int32(count)))


_TABLE = {
    "nn.conv2d": _conv2d,
    "nn.dense": _dense,
    "nn.bias_add": _add_bias,
    "add": _add_bias,
    "nn.global_avg_pool2d": _mean,
    "mean": _mean,
}


def _product(site: Site) -> relay.Expr | None:
    rule = _TABLE.get(site.op)
    return rule(site) if rule is not None else None


IntegerProducts = call_pass("IntegerProducts", _product)
