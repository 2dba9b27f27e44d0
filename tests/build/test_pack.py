"""Weights are packed as Relay's own folding packs them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relay

from tvm_codl.build.pack import PACK, transform_layout
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.register import cpu_target


def relays(value: np.ndarray, source: str, target: str) -> np.ndarray:
    mod = tvm.IRModule.from_expr(relay.layout_transform(relay.const(value), source, target))
    body = relay.transform.FoldConstant()(relay.transform.InferType()(mod))["main"].body
    return body.data.numpy()


@pytest.mark.parametrize("target", ["OHWI4o", "OHWI4o2i", "HWIO", "IOHW", "HWOI2i"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_layout_is_relays(target: str, dtype: str) -> None:
    value = np.arange(3 * 2 * 4 * 8).reshape(3, 2, 4, 8).astype(dtype)
    made = transform_layout(value, "HWIO", target)
    assert made is not None
    np.testing.assert_array_equal(made, relays(value, "HWIO", target))


@given(st.integers(1, 12), st.sampled_from([2, 3, 4]))
def test_blocks_that_do_not_fill_are_left_to_relay(channels: int, block: int) -> None:
    made = transform_layout(np.zeros((channels, 2)), "NC", f"NC{block}n")
    assert (made is None) == bool(channels % block)


@pytest.mark.parametrize(
    ("source", "target"), [("OHWI4o", "HWIO"), ("HWIO", "OHW"), ("HWIO", "OHWI4o2o"), ("HW", "WH")]
)
def test_other_layouts_are_left_to_relay(source: str, target: str) -> None:
    assert transform_layout(np.zeros((4, 4, 4, 4)), source, target) is None


@pytest.mark.parametrize("channels", [16, 24, 5])
def test_weights_are_constants_after_it(channels: int) -> None:
    """Whole vectors of channels, and others, which are padded first."""
    x = relay.var("x", shape=(1, 8, 8, 4))
    weights = np.random.default_rng(0).standard_normal((3, 3, 4, channels)).astype("float32")
    conv = relay.nn.conv2d(
        x, relay.const(weights), padding=(1, 1), channels=channels, kernel_size=(3, 3), data_layout="NHWC",
        kernel_layout="HWIO",
    )  # fmt: skip
    cpu = cpu_target(lanes=8)  # whatever this machine has
    target = tvm.target.Target(cpu, host=cpu)
    with scheduled(), target, tvm.transform.PassContext(opt_level=3):
        mod = PACK(relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], conv))))
    calls: list[relay.Call] = []
    relay.analysis.post_order_visit(mod["main"], lambda e: calls.append(e) if isinstance(e, relay.Call) else None)
    computed = [c.op.name for c in calls if all(isinstance(argument, relay.Constant) for argument in c.args)]
    assert computed == []
    convs = [c for c in calls if c.op.name == "nn.conv2d"]
    assert len(convs) == 1 and convs[0].attrs.kernel_layout != "HWIO"
