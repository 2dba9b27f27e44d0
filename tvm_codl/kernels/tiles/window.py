"""What a sliding window reads of its input, and the copy with zeros around it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tvm_codl.kernels.tiles.vectors import Size


def whole_tiles(columns: Size, tile: Size) -> Any:
    """``columns`` rounded up to tiles: tails are computed on zeros and not stored."""
    return -(-columns // tile) * tile


def reach(results: Size, stride: Size, kernel: Size, dilation: Size) -> Any:
    """How much of an axis ``results`` neighbouring results read."""
    return (results - 1) * stride + (kernel - 1) * dilation + 1


class Padded(msgspec.Struct, frozen=True):
    """``needed``: whether the window leaves the input, so that zeros must be put around it; then the size with them."""

    needed: Any
    height: Size
    width: Size


def padded(height: Size, width: Size, top: Size, left: Size, need_h: Size, need_w: Size) -> Padded:
    """``need_h``, ``need_w``: what the window reads, by :func:`reach`, padding and tails included."""
    needed = (top > 0) | (left > 0) | (need_h > height) | (need_w > width)
    # What the window never reaches stays where it is.
    return Padded(needed, np.maximum(need_h, top + height), np.maximum(need_w, left + width))
