"""Weights that a GPU reads from an image (texture) in place of a buffer.

Phones' GPUs cache images separately from buffers; on some, Adreno above all, kernels are faster that way.  A pixel is
four numbers, so kernels need vectors of four channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm
from tvm import te
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.target import image_side

PIXEL = 4
SCOPE = "global.texture-weight"
#: Work-items in a group of the kernel that fills an image, at most.
FILLERS = 64


def read_from_image(s: te.Schedule, weights: te.Tensor, acc: te.Tensor) -> None:
    """Has ``acc`` read ``weights`` (blocks, ..., 4) from an image, where the target asks for it and it fits.

    The image is ``blocks`` high and as wide as the product of the axes between.  A kernel of its own fills it: once, when
    the library is loaded, where it reads only weights (``runtime/native/coexec/gpu_record.cc``), else in each run.
    """
    if isinstance(weights.op, te.PlaceholderOp) and fits_image(get_const_tuple(weights.shape)):
        _fill(s, s.cache_read(weights, SCOPE, [acc]))


def fits_image(shape: Sequence[int]) -> bool:
    """Whether the target wants weights of this shape, whose last axis is a pixel, in an image."""
    side = image_side(tvm.target.Target.current())
    return shape[-1] == PIXEL and max(shape[0], math.prod(shape[1:-1])) <= side


def fill_image(s: te.Schedule, stage: te.Tensor) -> bool:
    """Keeps a stage of packed weights in an image where :func:`fits_image` says so; whether it does."""
    if not fits_image(get_const_tuple(stage.shape)):
        return False
    s[stage].set_scope(SCOPE)
    _fill(s, stage)
    return True


def _fill(s: te.Schedule, image: te.Tensor) -> None:
    *pixels, lane = s[image].op.axis
    threads = min(FILLERS, int(tvm.target.Target.current().max_num_threads))
    grid, thread = s[image].split(s[image].fuse(*pixels), threads)
    s[image].bind(grid, te.thread_axis("blockIdx.x"))
    s[image].bind(thread, te.thread_axis("threadIdx.x"))
    s[image].vectorize(lane)
