"""Quantising and dequantising as plain arithmetic, which is fused behind the operator before it."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay

from tvm_codl.relay.calls import Site, as_constant, call_pass, is_call, value_of
from tvm_codl.relay.quantised import DEQUANTISE, EIGHT_BITS, QUANTISE, Scheme, scheme_of

#: Added to a float32 of at most 2²² in magnitude it rounds that to the nearest integer ``n``, of two to the even one, as
#: onnxruntime does: from 2²³ to 2²⁴ neighbouring float32 are 1 apart.  The sum's bits are those of ``ROUNDER``, plus ``n``.
#: (TVM would drop an addition that is taken back at once; of a number in OpenCL source it prints seven digits, all that
#: this one has.)
ROUNDER = np.float32(12_000_000)
_BITS = int(ROUNDER.view(np.int32))


def _factor(scale: np.ndarray, shape: tuple[int, ...]) -> relay.Constant:
    """A scale as a tensor with a value for each channel: of a single one OpenCL source would have seven digits only, and
    one rounding that goes the other way changes all that follows."""
    if scale.size == 1 and shape:
        axis = 1 if len(shape) == 4 else len(shape) - 1
        scale = np.full([shape[axis], *[1] * (len(shape) - 1 - axis)], scale.item(), np.float32)
    return as_constant(scale)


def _dequantise(site: Site) -> relay.Expr | None:
    scheme = scheme_of(relay.Call(site.call.op, list(site.args), site.call.attrs))
    if scheme is None:
        return None
    data, rank = site.args[0], len(site.shape)
    scale, zero = (scheme.along(v, rank) for v in (scheme.scale, scheme.zero.astype(np.float32)))
    value = value_of(data)
    if value is not None:
        return as_constant(np.asarray((value.astype(np.float32) - zero) * scale, np.float32))
    rounded = _rounded(data, scheme) if site.uses[data] == 1 else None
    if rounded is not None:
        return relay.multiply(rounded, _factor(scale, site.shape))
    number = relay.cast(data, "float32")
    if zero.any():
        number = relay.subtract(number, as_constant(zero))
    return relay.multiply(number, _factor(scale, site.shape))


def _rounded(data: relay.Expr, scheme: Scheme) -> relay.Expr | None:
    """The integers, zero point taken off, that :func:`_quantise` made ``data`` of, if they are not needed as 8 bits."""
    whole = data.args[0] if is_call(data, "cast") else data
    if not is_call(whole, "subtract") or not is_call(whole.args[0], "reinterpret") or not scheme.is_one:
        return None
    offset = value_of(whole.args[1])
    if offset is None or offset.size != 1 or _BITS - offset.item() != scheme.zero.item():
        return None
    return relay.cast(relay.subtract(whole.args[0], relay.const(_BITS, "int32")), "float32")


def _quantise(site: Site) -> relay.Expr | None:
    scheme = scheme_of(relay.Call(site.call.op, list(site.args), site.call.attrs))
    dtype = str(site.call.attrs.out_dtype)
    if scheme is None or dtype not in EIGHT_BITS or not scheme.is_one:
        return None
    scale, zero = np.float32(scheme.scale.item()), int(scheme.zero.item())
    limits = np.iinfo(dtype)
    low, high = float(limits.min - zero), float(limits.max - zero)
    number = site.args[0]
    while is_call(number, "nn.relu", "clip") and site.uses[number] == 1:  # bounds of what is bounded anyway
        if is_call(number, "clip"):
            low, high = max(low, number.attrs.a_min / scale), min(high, number.attrs.a_max / scale)
        else:
            low = max(low, 0.0)
        number = number.args[0]
    factor = value_of(number.args[1]) if is_call(number, "multiply") and site.uses[number] == 1 else None
    if factor is not None and is_call(number.args[0], "cast"):  # of sums: one product, as onnxruntime does it
        number = relay.multiply(number.args[0], _factor(np.asarray(factor / scale, np.float32), site.shape))
    else:
        number = relay.divide(number, _factor(np.asarray(scale), site.shape))
    number = relay.clip(number, float(low), float(high))
    bits = relay.reinterpret(relay.add(number, as_constant(np.asarray(ROUNDER))), "int32")
    return relay.cast(relay.subtract(bits, relay.const(_BITS - zero, "int32")), dtype)


def _plain(site: Site) -> relay.Expr | None:
    return {QUANTISE: _quantise, DEQUANTISE: _dequantise}.get(site.op, lambda _: None)(site)


PlainQuantised: tvm.transform.Pass = call_pass("PlainQuantised", _plain)
