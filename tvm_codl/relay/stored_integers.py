"""Passes that keep quantised tensors integers for longer, and give them a zero point of zero where that is free."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import tvm
from tvm import relay

from tvm_codl.relay.calls import Site, as_constant, call_pass, is_call, value_of
from tvm_codl.relay.fold import TABLE
from tvm_codl.relay.quantised import (
    DEQUANTISE,
    EIGHT_BITS,
    QUANTISE,
    Scheme,
    dequantise,
    dtype_of,
    quantise,
    scheme_of,
)
from tvm_codl.relay.walk import rewrite, with_children

#: What gives values of its first argument, or the larger ones of them: integers do as well as the numbers they stand for.
MOVES = frozenset({
    "copy", "expand_dims", "layout_transform", "nn.batch_flatten", "nn.depth_to_space", "nn.global_max_pool2d",
    "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.space_to_depth", "reshape", "squeeze", "strided_slice", "take",
    "transpose",
})  # fmt: skip
#: A stored type and a zero point, and the type in which the zero point is 0.
_FROM_ZERO = {("int8", -128): "uint8", ("uint8", 128): "int8"}


def _move(site: Site) -> relay.Expr | None:
    """Dequantising comes after what moves values; it goes where the same numbers are quantised again."""
    if not site.args:
        return None
    data = site.args[0]
    if site.op == "concatenate" and isinstance(data, relay.Tuple):
        return _concatenate(site, data)
    scheme = scheme_of(data) if is_call(data, DEQUANTISE) else None
    if scheme is None:
        return None
    integers = data.args[0]
    if site.op == QUANTISE:
        other = scheme_of(relay.Call(site.call.op, list(site.args), site.call.attrs))
        same = other is not None and scheme.equals(other) and dtype_of(integers) == str(site.call.attrs.out_dtype)
        return integers if same else None
    if site.op == "transpose" and (value := value_of(integers)) is not None:
        axes = [int(axis) for axis in site.call.attrs.axes] if site.call.attrs.axes is not None else None
        order = axes or list(range(value.ndim))[::-1]
        moved = Scheme(scheme.scale, scheme.zero, 0 if scheme.is_one else order.index(scheme.axis % value.ndim))
        return dequantise(as_constant(np.ascontiguousarray(TABLE["transpose"](site.call.attrs, [value]))), moved)
    if site.op == "reshape" and not scheme.is_one and (value := value_of(integers)) is not None:
        return _reshaped(value, scheme, site.shape)
    if site.op not in MOVES or not scheme.is_one or dtype_of(integers) not in EIGHT_BITS:
        return None
    return dequantise(relay.Call(site.call.op, [integers, *site.args[1:]], site.call.attrs), scheme)


def _reshaped(value: np.ndarray, scheme: Scheme, shape: tuple[int, ...]) -> relay.Expr | None:
    """Constants with a scale for each channel, where the new shape has an axis of the channels."""
    axis = scheme.axis % value.ndim
    behind = prod(value.shape[axis + 1 :])
    for new, size in enumerate(shape):
        if size == value.shape[axis] and prod(shape[new + 1 :]) == behind:
            return dequantise(as_constant(value.reshape(shape)), Scheme(scheme.scale, scheme.zero, new))
    return None


def _concatenate(site: Site, parts: relay.Tuple) -> relay.Expr | None:
    schemes = [scheme_of(part) if is_call(part, DEQUANTISE) else None for part in parts.fields]
    first = schemes[0]
    if first is None or not all(scheme is not None and scheme.equals(first) for scheme in schemes):
        return None
    integers = [part.args[0] for part in parts.fields]
    if len({dtype_of(each) for each in integers}) > 1:
        return None
    return dequantise(relay.Call(site.call.op, [relay.Tuple(integers)], site.call.attrs), first)


@tvm.transform.module_pass(opt_level=0, name="StoreFromZero")
def StoreFromZero(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """What is quantised to int8 with zero point -128, as behind a ReLU, becomes uint8 with zero point 0, and uint8 with 128
    becomes int8: a convolution then pads with zeros.  What is not ours to change gets the integers that it had."""
    body = module["main"].body
    moved: dict[relay.Expr, str] = {}  # by what now holds them, the type that they had

    def back(expr: relay.Expr) -> relay.Expr:
        if expr not in moved:
            return expr
        offset = -128 if moved[expr] == "int8" else 128
        shifted = relay.add(relay.cast(expr, "int16"), relay.const(offset, "int16"))
        return relay.cast(shifted, moved[expr])

    def rule(expr: relay.Expr, new: Sequence[relay.Expr]) -> relay.Expr | None:
        made = with_children(expr, new)
        scheme = scheme_of(made)
        is_root = expr.same_as(body)
        if is_call(expr, QUANTISE) and scheme is not None and scheme.is_one and not is_root:
            dtype = str(expr.attrs.out_dtype)
            to = _FROM_ZERO.get((dtype, scheme.zero.item()))
            if to is not None:
                zero = np.zeros_like(scheme.zero)
                made = quantise(new[0], Scheme(scheme.scale, zero, scheme.axis), to)
                moved[made] = dtype
                return made
        had = moved.get(new[0]) if new else None
        if is_call(expr, DEQUANTISE) and had is not None and scheme is not None:
            offset = np.int32(128 if had == "int8" else -128)
            return dequantise(new[0], Scheme(scheme.scale, scheme.zero + offset, scheme.axis))
        if is_call(expr, *MOVES) and had is not None and not is_root:
            moved[made] = had
            return made
        return with_children(expr, [back(child) for child in new])

    return rewrite(module, rule)


MoveDequantise = call_pass("MoveDequantise", _move)
