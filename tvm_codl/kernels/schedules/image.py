"""Weights that a GPU reads from an image (texture) in place of a buffer.

Phones' GPUs cache images separately from buffers; on some, Adreno above all, kernels are faster that way.  A pixel is
four numbers, so kernels need vectors of four channels.
"""

from __future__ import annotations

import math

import tvm
from tvm import te
from tvm.topi.utils import get_const_tuple

from tvm_codl.kernels.target import image_side

PIXEL = 4
#: Work-items in a group of the kernel that fills an image, at most.
FILLERS = 64


def read_from_image(s: te.Schedule, weights: te.Tensor, acc: te.Tensor) -> None:
    """Has ``acc`` read ``weights`` (blocks, ..., 4) from an image, where the target asks for it and it fits.

    The image is ``blocks`` high and as wide as the product of the axes between.  A kernel of its own fills it: once, when
    the library is loaded, where it reads only weights (``runtime/native/coexec/gpu_record.cc``), else in each run.
    """
    side = image_side(tvm.target.Target.current())
    blocks, *between, lanes = get_const_tuple(weights.shape)
    if not isinstance(weights.op, te.PlaceholderOp) or lanes != PIXEL or max(blocks, math.prod(between)) > side:
        return
    image = s.cache_read(weights, "global.texture-weight", [acc])
    *pixels, lane = s[image].op.axis
    threads = min(FILLERS, int(tvm.target.Target.current().max_num_threads))
    grid, thread = s[image].split(s[image].fuse(*pixels), threads)
    s[image].bind(grid, te.thread_axis("blockIdx.x"))
    s[image].bind(thread, te.thread_axis("threadIdx.x"))
    s[image].vectorize(lane)
