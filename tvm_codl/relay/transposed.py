"""Transposed convolution in NHWC.

TVM has them in NCHW only, with slow kernels for GPUs.  Each phase of the output, the pixels ``stride`` apart, is a
convolution of the input with every ``stride``-th tap of the kernel; so all phases are one convolution to
``stride² · channels`` channels, whose blocks are then laid out in space (Shi et al. 2016, "Is the deconvolution layer the
same as a convolutional layer?").  If the two strides differ or the weights are computed, the operator stays in NCHW,
between two layout changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relay

from tvm_codl.relay.calls import Site, as_constant, call_pass, is_call, made_from, shape_of, value_of


def _weights(call: relay.Call) -> np.ndarray | None:
    """The weights as (in, out, height, width), or None if they are computed."""
    value = value_of(call.args[1])
    layout = str(call.attrs.kernel_layout)
    if value is None or sorted(layout) != sorted("IOHW"):
        return None
    return value.transpose([layout.index(letter) for letter in "IOHW"])


def _scale_weights(site: Site) -> relay.Expr | None:
    """A constant scale of each channel, behind a transposed convolution, goes into its weights."""
    if site.op != "multiply" or not is_call(site.args[0], "nn.conv2d_transpose") or site.uses[site.args[0]] != 1:
        return None
    call, scale = site.args[0], value_of(site.args[1])
    if scale is None or str(call.attrs.data_layout) != "NHWC" or int(call.attrs.groups) != 1:
        return None
    layout, value = str(call.attrs.kernel_layout), value_of(call.args[1])
    if value is None or scale.ndim > 4 or scale.size not in (1, value.shape[layout.index("O")]):
        return None
    if scale.ndim and scale.size != scale.shape[-1]:
        return None
    shape = [-1 if letter == "O" else 1 for letter in layout]
    weights = as_constant(np.asarray(value * scale.reshape(shape), value.dtype))
    return made_from(relay.Call(call.op, [call.args[0], weights], call.attrs), call, site.call)


def _dilate(weights: np.ndarray, dilation: Sequence[int]) -> np.ndarray:
    """The kernel with zeros in the gaps of its dilation."""
    height, width = ((size - 1) * by + 1 for size, by in zip(weights.shape[2:], dilation, strict=True))
    spread = np.zeros((*weights.shape[:2], height, width), weights.dtype)
    spread[:, :, :: dilation[0], :: dilation[1]] = weights
    return spread


def _lower(site: Site) -> relay.Expr | None:
    if site.op != "nn.conv2d_transpose" or str(site.call.attrs.data_layout) != "NHWC":
        return None
    call = made_from(relay.Call(site.call.op, list(site.args), site.call.attrs), site.call)
    return _as_convolution(call, shape_of(site.call.args[0]), site.shape) or _back_to_nchw(call)


@dataclass(frozen=True)
class Phases:
    """One axis of a transposed convolution as a convolution: output ``stride · q + phase - cut`` is the sum over its
    ``taps``, t, of input ``q + first + t`` times the kernel's tap :meth:`of`, for each phase below ``stride``.

    ``extent`` is the input's size, ``size`` the output's.
    """

    stride: int
    first: int
    taps: int
    cut: int
    offset: int
    extent: int
    size: int

    @property
    def padding(self) -> tuple[int, int]:
        """Zeros before and behind the input; behind, no fewer than none."""
        steps = -(-(self.size + self.cut) // self.stride)
        return -self.first, max(0, steps + self.first + self.taps - 1 - self.extent)

    def of(self, phase: int, tap: int) -> int:
        """The kernel's tap; outside the kernel where this phase has none there."""
        return phase + self.offset - self.stride * (self.first + tap)


def _phases(kernel: int, stride: int, before: int, extent: int, size: int) -> Phases:
    """With the fewest taps; among these, with the fewest outputs to cut off at the start.

    Output ``o`` meets the kernel's tap ``k`` at input ``i`` where ``stride · i + k = o + before`` (ONNX ConvTranspose).
    """

    def cutting(cut: int) -> Phases:
        offset = before - cut
        first, last = -((kernel - 1 - offset) // stride), (stride - 1 + offset) // stride
        return Phases(stride, first, last - first + 1, cut, offset, extent, size)

    return min(map(cutting, range(stride)), key=lambda phases: (phases.taps, phases.cut))


def _as_convolution(call: relay.Call, data: tuple[int, ...], result: tuple[int, ...]) -> relay.Expr | None:
    attrs, weights = call.attrs, _weights(call)
    strides, groups = {int(s) for s in attrs.strides}, int(attrs.groups)
    if weights is None or len(strides) > 1:
        return None
    (stride,) = strides
    weights = _dilate(weights, [int(d) for d in attrs.dilation])
    inputs, channels = weights.shape[0] // groups, weights.shape[1]  # of a group
    y, x = (
        _phases(weights.shape[2 + axis], stride, int(attrs.padding[axis]), data[1 + axis], result[1 + axis])
        for axis in (0, 1)
    )
    if y.first > 0 or x.first > 0:  # padding as large as the kernel: it skips rows of the input
        return None
    # Depth to space takes channel c·block² + dy·block + dx ("CRD") to pixel (dy, dx) of channel c, which keeps groups
    # together; or (dy·block + dx)·channels + c ("DCR"), which moves neighbouring channels together.
    packed = np.zeros((y.taps, x.taps, inputs, groups, channels, stride, stride), weights.dtype)
    by_group = weights.reshape(groups, inputs, channels, *weights.shape[2:]).transpose(1, 0, 2, 3, 4)
    for dy, dx, ty, tx in np.ndindex(stride, stride, y.taps, x.taps):
        ky, kx = y.of(dy, ty), x.of(dx, tx)
        if 0 <= ky < weights.shape[2] and 0 <= kx < weights.shape[3]:
            packed[ty, tx, ..., dy, dx] = by_group[..., ky, kx]
    if groups == 1:
        packed = packed.transpose(0, 1, 2, 5, 6, 3, 4)
    count = groups * channels * stride * stride
    pixels = relay.nn.conv2d(
        call.args[0],
        as_constant(np.ascontiguousarray(packed).reshape(y.taps, x.taps, inputs, count)),
        channels=count,
        kernel_size=(y.taps, x.taps),
        padding=(y.padding[0], x.padding[0], y.padding[1], x.padding[1]),
        groups=groups,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    pixels = made_from(pixels, call)
    if stride > 1:
        mode = "DCR" if groups == 1 else "CRD"
        pixels = made_from(relay.nn.depth_to_space(pixels, block_size=stride, layout="NHWC", mode=mode), call)
    made = [stride * (p.extent + sum(p.padding) - p.taps + 1) for p in (y, x)]
    if made == [y.size, x.size] and not (y.cut or x.cut):
        return pixels
    end = [result[0], y.cut + y.size, x.cut + x.size, result[3]]
    return made_from(relay.strided_slice(pixels, [0, y.cut, x.cut, 0], end), call)


def _back_to_nchw(call: relay.Call) -> relay.Expr:
    attrs, value = call.attrs, _weights(call)
    dilation, size = attrs.dilation, attrs.kernel_size
    if value is None:
        weights = relay.layout_transform(call.args[1], str(attrs.kernel_layout), "IOHW")
    else:  # TVM's kernels know no dilation
        value = np.ascontiguousarray(_dilate(value, [int(d) for d in dilation]))
        weights, dilation, size = as_constant(value), (1, 1), value.shape[2:]
    result = relay.nn.conv2d_transpose(
        relay.layout_transform(call.args[0], "NHWC", "NCHW"),
        weights,
        strides=attrs.strides,
        padding=attrs.padding,
        dilation=dilation,
        channels=attrs.channels,
        kernel_size=size,
        groups=attrs.groups,
        output_padding=attrs.output_padding,
        data_layout="NCHW",
        kernel_layout="IOHW",
    )
    return relay.layout_transform(made_from(result, call), "NCHW", "NHWC")


ScaleTransposed = call_pass("ScaleTransposed", _scale_weights)
TransposedAsConvolution = call_pass("TransposedAsConvolution", _lower)
