"""The zeros around the input of a convolution, as a stage of its own."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.tiles import window

#: The stage that a convolution's schedule looks for.
TAG = "conv2d_nhwc_codl"


def padded(data: te.Tensor, top: int, left: int, need_h: int, need_w: int, extra: int = 0) -> te.Tensor:
    """``data`` (N, H, W, C) with zeros around it where the window, which reads ``need_h`` × ``need_w``, leaves it.

    ``extra`` are channels of zeros behind the last one.
    """
    n, h, w, c = get_const_tuple(data.shape)
    copy = window.padded(h, w, top, left, need_h, need_w)
    if not copy.needed and not extra:
        return data
    height, width = int(copy.height), int(copy.width)
    zero = tvm.tir.const(0, data.dtype)

    def value(b: Any, y: Any, x: Any, ch: Any) -> Any:
        inside = [y >= top, y < top + h] if top or height > top + h else []
        inside += [x >= left, x < left + w] if left or width > left + w else []
        inside += [ch < c] if extra else []
        here = data[b, y - top, x - left, ch]
        return tvm.tir.if_then_else(tvm.tir.likely(tvm.tir.all(*inside)), here, zero) if inside else here

    return te.compute((n, height, width, c + extra), value, name="data_pad")
