"""Ideal: every operator shared perfectly, without transfers."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_codl.errors import UserError


def ideal_ms(cpu_ms: Sequence[float], gpu_ms: Sequence[float]) -> float:
    """The sum over operators of 1 / (1/cpu + 1/gpu); of an infinite time, the other processor's alone.

    Raises :class:`UserError` for lists of unequal length.
    """
    if len(cpu_ms) != len(gpu_ms):
        raise UserError("the ideal time needs both times of every operator", f"{len(cpu_ms)} and {len(gpu_ms)} times")
    return sum(1.0 / (1.0 / c + 1.0 / g) if c > 0 and g > 0 else 0.0 for c, g in zip(cpu_ms, gpu_ms, strict=True))
