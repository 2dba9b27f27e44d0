"""exp, sigmoid, tanh, erf and softmax as arithmetic that compilers turn into vectors.

LLVM calls the C library's ``expf`` and ``erff`` once per element.  OpenCL compilers have vector exponentials, so the GPU
keeps TVM's, except erf: the time of ``erff`` depends on the value, so a network's GELU would not take the measured time.
tanh and erf are TVM's ``fast_tanh`` and ``fast_erf``.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tir, topi

LOG2E = 1.4426950408889634
# ln 2 in two parts: the first has so few bits that its product with an exponent is exact (Cody and Waite).
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
LOWEST, HIGHEST = -87.3, 88.7  # outside, float32 holds no normal result
# A processor takes a hundred times as long for a result that is not normal.  A power of softmax is divided by the sum of all,
# and the quotient must be normal too.
LOWEST_POWER = -70.0
# Minimax polynomial of (exp(r) - 1 - r) / r² on [-ln 2 / 2, ln 2 / 2], from Cephes' expf.
POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def exp_value(x: Any, lowest: float = LOWEST, highest: float = HIGHEST) -> Any:
    """exp(``x``) for one float32, within 2 units in the last place from ``lowest`` to ``highest``, which stand for what is
    outside."""
    const = tir.const
    x = te.max(te.min(x, const(highest, "float32")), const(lowest, "float32"))
    n = te.floor(x * const(LOG2E, "float32") + const(0.5, "float32"))
    r = x - n * const(LN2_HIGH, "float32") - n * const(LN2_LOW, "float32")
    p = const(POLYNOMIAL[0], "float32")
    for coefficient in POLYNOMIAL[1:]:
        p = p * r + const(coefficient, "float32")
    # Halves of the exponent: 2^128 is no float32, 2^64 is.
    whole = n.astype("int32")
    half = tir.shift_right(whole, const(1, "int32"))
    return (p * r * r + r + const(1.0, "float32")) * _power_of_two(half) * _power_of_two(whole - half)


def _power_of_two(n: Any) -> Any:
    return tir.reinterpret("float32", tir.shift_left(n + tir.const(127, "int32"), tir.const(23, "int32")))


def exp(x: te.Tensor) -> te.Tensor:
    return _each(x, exp_value, "exp")


def sigmoid(x: te.Tensor) -> te.Tensor:
    one = tir.const(1.0, "float32")
    return _each(x, lambda v: one / (one + exp_value(-v, highest=-LOWEST)), "sigmoid")


def softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """Maximum, exponentials, their sum, quotient: one stage each."""
    axis %= len(x.shape)
    largest = topi.max(x, axis, keepdims=True)
    powers = te.compute(
        x.shape,
        lambda *i: exp_value(
            x(*i) - largest(*(tir.const(0, "int32") if d == axis else v for d, v in enumerate(i))), LOWEST_POWER
        ),
        name="powers",
        tag="powers_codl",  # not inlined: it is read twice
    )
    return topi.divide(powers, topi.sum(powers, axis, keepdims=True))


def _each(x: te.Tensor, value: Any, name: str) -> te.Tensor:
    return te.compute(x.shape, lambda *i: value(x(*i)), name=name, tag=topi.tag.ELEMWISE)
