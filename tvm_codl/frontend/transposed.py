"""Transposed convolution in NHWC.

TVM's transposed convolutions exist in NCHW only.  Where the kernel is as large as the stride, its windows do not
overlap: it is a 1×1 convolution to ``stride² · channels`` channels, whose blocks are then laid out in space.  Any other
one is brought back to NCHW where it stands.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay

from tvm_codl.frontend.rewrite import Site, is_call, rewrite, value_of


def rewrite_transposed(module: tvm.IRModule) -> tvm.IRModule:
    """``module`` without transposed convolutions in NHWC."""
    return rewrite(rewrite(module, _fold_scale), _rewrite)


def _weights(call: relay.Call) -> np.ndarray | None:
    """The weights as (in, out, height, width), or None if they are computed."""
    value = value_of(call.args[1])
    layout = str(call.attrs.kernel_layout)
    if value is None or sorted(layout) != sorted("IOHW"):
        return None
    return _input_first(value, layout)


def _input_first(value: np.ndarray, layout: str) -> np.ndarray:
    return value.transpose([layout.index(letter) for letter in "IOHW"])


def _fold_scale(site: Site) -> relay.Expr | None:
    """A constant scale for each channel behind a transposed convolution goes into its weights."""
    if site.op != "multiply" or not is_call(site.args[0], "nn.conv2d_transpose") or site.uses[site.args[0]] != 1:
        return None
    call, scale = site.args[0], value_of(site.args[1])
    if scale is None or str(call.attrs.data_layout) != "NHWC" or int(call.attrs.groups) != 1:
        return None
    if scale.size != scale.shape[-1] if scale.ndim else False:
        return None
    layout, value = str(call.attrs.kernel_layout), value_of(call.args[1])
    if value is None:
        return None
    shape = [-1 if letter == "O" else 1 for letter in layout]
    return relay.Call(call.op, [call.args[0], relay.const(value * scale.reshape(shape))], call.attrs)


def _rewrite(site: Site) -> relay.Expr | None:
    if site.op != "nn.conv2d_transpose" or str(site.call.attrs.data_layout) != "NHWC":
        return None
    call = relay.Call(site.call.op, list(site.args), site.call.attrs)
    return _as_convolution(call) or _back_to_nchw(call)


def _as_convolution(call: relay.Call) -> relay.Expr | None:
    attrs, weights = call.attrs, _weights(call)
    if weights is None or int(attrs.groups) != 1:
        return None
    inputs, channels, height, width = weights.shape
    strides = [int(s) for s in attrs.strides]
    plain = not any(int(v) for v in [*attrs.padding, *attrs.output_padding]) and all(
        int(d) == 1 for d in attrs.dilation
    )
    if strides != [height, width] or height != width or not plain:
        return None
    # Depth to space takes channel (dy·block + dx)·channels + c to pixel (dy, dx) of channel c.
    packed = weights.transpose(0, 2, 3, 1).reshape(1, 1, inputs, height * width * channels)
    pixels = relay.nn.conv2d(
        call.args[0],
        relay.const(np.ascontiguousarray(packed)),
        channels=height * width * channels,
        kernel_size=(1, 1),
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    return relay.nn.depth_to_space(pixels, block_size=height, layout="NHWC", mode="DCR")


def _back_to_nchw(call: relay.Call) -> relay.Expr:
    attrs, layout = call.attrs, str(call.attrs.kernel_layout)
    value = value_of(call.args[1])
    weights = relay.const(np.ascontiguousarray(_input_first(value, layout))) if value is not None else None
    result = relay.nn.conv2d_transpose(
        relay.layout_transform(call.args[0], "NHWC", "NCHW"),
        weights or relay.layout_transform(call.args[1], layout, "IOHW"),
        strides=attrs.strides,
        padding=attrs.padding,
        dilation=attrs.dilation,
        channels=attrs.channels,
        kernel_size=attrs.kernel_size,
        groups=attrs.groups,
        output_padding=attrs.output_padding,
        data_layout="NCHW",
        kernel_layout="IOHW",
    )
    return relay.layout_transform(result, "NCHW", "NHWC")
