"""Reshapes move behind element-wise operators, and the values stay."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay

from tests.runtime.schedule_cases import module, stock, weights
from tvm_codl.build.order import in_order
from tvm_codl.build.reshapes import MOVE_RESHAPES

nn = relay.nn


def pointwise(x: relay.Expr, channels_in: int, channels: int) -> relay.Expr:
    """A convolution of 3 x 5 positions in one row, as the kernels ask for it."""
    row = nn.conv2d(
        relay.reshape(x, (1, 1, 15, channels_in)), weights(1, 1, channels_in, channels), channels=channels,
        kernel_size=(1, 1), data_layout="NHWC", kernel_layout="HWIO",
    )  # fmt: skip
    return relay.reshape(row, (1, 3, 5, channels))


def kernels(mod: tvm.IRModule) -> list[str]:
    """The operators of each kernel after fusion; a reshape alone is none."""
    body = relay.transform.FuseOps(2)(relay.transform.InferType()(mod))["main"].body
    calls = [expr for expr in in_order(body) if isinstance(expr, relay.Call)]
    inside = [[e.op.name for e in in_order(call.op.body) if isinstance(e, relay.Call)] for call in calls]
    return [" ".join(names) for names in inside if names != ["reshape"]]


def check(mod: tvm.IRModule, wanted: list[str]) -> None:
    moved = MOVE_RESHAPES(mod)
    assert kernels(moved) == wanted
    for ours, theirs in zip(stock(moved), stock(mod), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_bottleneck_has_a_kernel_for_each_convolution() -> None:
    def body(x: relay.Expr) -> relay.Expr:
        first = nn.relu(nn.bias_add(pointwise(x, 8, 16), weights(16), axis=3))
        second = nn.relu(relay.add(relay.add(pointwise(first, 16, 8), weights(1, 1, 1, 8)), x))
        return relay.Tuple([second, nn.max_pool2d(second, (3, 3), layout="NHWC")])

    mod = module(body, (1, 3, 5, 8))
    assert len(kernels(mod)) > 3
    check(mod, ["nn.conv2d nn.bias_add nn.relu", "nn.conv2d add add nn.relu", "nn.max_pool2d"])


def test_a_value_that_is_used_twice_stays_in_its_row() -> None:
    def swish(x: relay.Expr) -> relay.Expr:
        made = pointwise(x, 8, 8)
        return relay.multiply(made, relay.sigmoid(made))

    check(module(swish, (1, 3, 5, 8)), ["nn.conv2d sigmoid multiply"])


def test_operands_that_differ_by_row_or_column_end_it() -> None:
    def body(x: relay.Expr) -> relay.Expr:
        return relay.add(relay.add(pointwise(x, 8, 8), weights(1, 1, 5, 8)), relay.const(2.0))

    mod = module(body, (1, 3, 5, 8))
    found = [e.op.name for e in in_order(MOVE_RESHAPES(mod)["main"].body) if isinstance(e, relay.Call)]
    assert found == ["reshape", "nn.conv2d", "reshape", "add", "add"]
    np.testing.assert_allclose(stock(MOVE_RESHAPES(mod))[0], stock(mod)[0], rtol=1e-6, atol=1e-6)
