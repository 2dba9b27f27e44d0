"""Our constant folding gives what Relay's own does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.frontend.onnx_models import random
from tvm_codl.relay.fold import TABLE, FoldConstants

X, Y = relay.const(np.abs(random(2, 3, 4, 5)) + 1), relay.const(random(3, 1, 1, seed=1))
CASES: dict[str, Callable[[], relay.Expr]] = {
    "add": lambda: relay.add(X, Y),
    "subtract": lambda: relay.subtract(X, Y),
    "multiply": lambda: relay.multiply(X, Y),
    "divide": lambda: relay.divide(X, Y),
    "cast": lambda: relay.cast(X, "int32"),
    "negative": lambda: relay.negative(X),
    "sqrt": lambda: relay.sqrt(X),
    "rsqrt": lambda: relay.rsqrt(X),
    "expand_dims": lambda: relay.expand_dims(X, axis=-1, num_newaxis=2),
    "squeeze": lambda: relay.squeeze(Y, axis=[1, 2]),
    "transpose": lambda: relay.transpose(X, axes=(0, 2, 3, 1)),
    "layout_transform": lambda: relay.layout_transform(X, "OIHW", "HWIO"),
    "reshape": lambda: relay.reshape(X, (0, -1)),
    "batch_flatten": lambda: relay.nn.batch_flatten(X),
    "split": lambda: relay.split(X, 2, axis=2)[1],
    "split at": lambda: relay.split(X, [1, 3], axis=-1)[2],
    "strided_slice": lambda: relay.strided_slice(X, [0, -3], [2, 10], [1, 2]),
    "strided_slice of axes": lambda: relay.strided_slice(X, [1], [3], axes=[3]),
}


def value(module: tvm.IRModule) -> np.ndarray:
    body = module["main"].body
    assert isinstance(body, relay.Constant), body
    return np.asarray(body.data.numpy())


@pytest.mark.parametrize("name", CASES)
def test_same_as_relay(name: str) -> None:
    module = relay.transform.InferType()(tvm.IRModule.from_expr(CASES[name]()))
    want = value(relay.transform.FoldConstant()(module))
    got = value(FoldConstants(module))
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_what_is_cut_from_a_filled_tensor_is_a_constant() -> None:
    """Relay's own pass leaves a filled tensor as it is, and compiles a kernel for each part of it."""
    for filled, number in ((relay.zeros, 0), (relay.ones, 1)):
        module = tvm.IRModule.from_expr(relay.split(filled((2, 4), "int64"), 2, axis=1)[1])
        found = value(FoldConstants(relay.transform.InferType()(module)))
        assert found.dtype == np.int64 and found.tolist() == [[number] * 2] * 2


def test_every_operator_of_the_table_has_a_case() -> None:
    assert set(TABLE) <= set(CASES)


def test_blocked_layouts_and_integer_division_are_left_to_relay() -> None:
    blocked = relay.layout_transform(relay.const(random(4, 4, 2, 2)), "OIHW", "OIHW2i")
    divided = relay.divide(relay.const(np.array([7], "int32")), relay.const(np.array([2], "int32")))
    backwards = relay.strided_slice(X, [3], [0], [-1], axes=[3])
    for expr in (blocked, divided, backwards):
        module = relay.transform.InferType()(tvm.IRModule.from_expr(expr))
        assert isinstance(FoldConstants(module)["main"].body, relay.Call)


def test_long_networks_do_not_exhaust_the_stack() -> None:
    x = relay.var("x", shape=(2,))
    y = x
    for _ in range(3000):
        y = relay.tanh(y)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
    assert FoldConstants(module)["main"].body.op.name == "tanh"


def test_64_bit_integers_stay_64_bits_wide() -> None:
    """Relay's own ``const`` makes 32-bit integers of an array of 64-bit ones, unless told."""
    big = relay.const(np.array([2**40, -1]), "int64")
    for body in (relay.add(big, big), relay.reshape(big, (2, 1))):
        module = FoldConstants(relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([], body))))
        assert value(module).dtype == np.int64
        assert value(module).ravel()[0] in (2**40, 2**41)
