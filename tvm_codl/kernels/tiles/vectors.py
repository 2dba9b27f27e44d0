"""In which vectors channels are packed and computed."""

from __future__ import annotations

PACK_POSITIONS = 64


def lanes_for(channels: int, widest: int) -> int:
    """The largest vector up to ``widest`` that divides ``channels``; 1 if none does."""
    return next((n for n in (16, 8, 4, 2) if n <= widest and channels % n == 0), 1)


def packing(channels: int, positions: int, widest: int) -> tuple[int, bool]:
    """The vector in which weights are packed, and whether its last one is filled up with zeros.

    24 channels are two vectors of 16 that way, not three of 8 that take as long each, and the three of an image are one
    of 4, not three numbers.  The weights are then packed each time the kernel runs, as Relay knows no packed layout with
    more channels than the operator has: worth it only where they are used at many positions.
    """
    lanes = lanes_for(channels, widest)
    if positions < PACK_POSITIONS:
        return lanes, False
    if channels == 3 and widest >= 4:  # OpenCL has vectors of three, else only of powers of two
        return 4, True
    fuller = 4 <= lanes < widest < channels and -(-channels // widest) < channels // lanes
    return (widest, True) if fuller else (lanes, False)


def missing(channels: int, widest: int) -> int:
    """Channels to add until a vector divides them; 0 where one does already or there are too few to matter."""
    if channels % 4 == 0 or channels < 16 or widest == 1:
        return 0
    return -channels % widest


def missing_constant(channels: int, positions: int, depth: int, widest: int) -> int:
    """Channels to add where the kernel would pack its weights as it runs, and they are larger than its results."""
    lanes, fill = packing(channels, positions, widest)
    return -channels % lanes if fill and positions < depth else 0
