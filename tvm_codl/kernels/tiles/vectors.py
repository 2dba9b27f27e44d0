"""In which vectors channels are packed and computed.  Sizes are integers or arrays of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
#: An integer, or an array of them.
Size = Any

PACK_POSITIONS = 64

#: LLVM's processors and features with registers of 16 and of 8 float32.  Their names must do where there is no LLVM.
_AVX512 = re.compile(
    r"\+avx512|skylake.avx512|mic_avx512|skx|kn[lm]\b|(cannon|ice|cascade|cooper|tiger|rocket|nova)lake|rapids"
    r"|znver[4-9]|x86-64-v4"
)
_AVX2 = re.compile(
    r"avx2|lake(?!mont)|haswell|broadwell|core_[45]th|bdver4|gracemont|grandridge|forest|znver[1-3]|x86-64-v3"
)

#: Vectors of kernels with a register tile, and of all others.
WIDTHS, STAGE_WIDTHS = (2, 4, 8, 16), (4, 8, 16)


def register_lanes(llvm: str) -> int:
    """float32 in a vector register of a target like ``llvm -mcpu=haswell``: 16 with AVX-512, 8 with AVX2, else 4."""
    words = " ".join(word for word in llvm.split() if word.startswith(("-mcpu=", "-mattr=")))
    return 16 if _AVX512.search(words) else 8 if _AVX2.search(words) else 4


def lanes_for(channels: Size, widest: int, widths: tuple[int, ...] = WIDTHS) -> Integers:
    """The largest vector up to ``widest`` that divides ``channels``; 1 if none does."""
    lanes = np.ones_like(channels)
    for n in widths:
        if n <= widest:
            lanes = np.where(channels % n == 0, n, lanes)
    return lanes


def packing(channels: Size, positions: Size, widest: int) -> tuple[Integers, Booleans]:
    """The vector in which weights are packed, and whether its last one is filled up with zeros.

    24 channels make two vectors of 16 rather than three of 8, which take as long each; an image's three make one of 4.
    Relay has no packed layout with more channels than the operator, so filled weights are packed whenever the kernel
    runs: that pays only where they are used at many positions.
    """
    lanes = lanes_for(channels, widest)
    three = (channels == 3) & (widest >= 4)  # OpenCL has vectors of three, else only of powers of two
    fuller = (lanes >= 4) & (lanes < widest) & (widest < channels) & (-(-channels // widest) < channels // lanes)
    fill = (three | fuller) & (positions >= PACK_POSITIONS)
    return np.where(fill, np.where(three, 4, widest), lanes), fill


def integer_packing(channels: Size, positions: Size, widest: int) -> tuple[Integers, Booleans]:
    """As :func:`packing`, of weights of 8 bits: an instruction fills at least a vector of 4 sums."""
    lanes, fill = packing(channels, positions, widest)
    few = lanes < 4
    least = np.where(channels <= 4, 4, np.where(channels <= 8, np.minimum(8, widest), widest))
    return np.where(few, least, lanes), fill | few


def missing(channels: Size, widest: int) -> Integers:
    """Channels to add until a vector divides them; 0 where one does, or where they are too few to matter."""
    ragged = (channels % 4 != 0) & (channels >= 16) & (widest > 1)
    return np.where(ragged, -channels % widest, 0)


def missing_conv2d(channels: Size, positions: Size, depth: Size, widest: int) -> Integers:
    """As :func:`missing`, and where the kernel would fill up its weights as it runs, though they outnumber its results."""
    extra = missing(channels, widest)
    lanes, fill = packing(channels, positions, widest)
    return np.where((extra == 0) & fill & (positions < depth), -channels % lanes, extra)


def largest_divisor(extent: Size, at_most: Size) -> Integers:
    """The largest divisor of ``extent`` up to ``at_most``, which is small."""
    divisor = np.ones_like(extent)
    for d in range(2, int(np.max(at_most, initial=1)) + 1):
        divisor = np.where((extent % d == 0) & (d <= at_most), d, divisor)
    return divisor
