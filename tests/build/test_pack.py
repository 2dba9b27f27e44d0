"""Weights are packed as Relay's own folding packs them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relay

from tests.runtime.schedule_cases import conv
from tests.unit.plan.networks import Network
from tvm_codl.build.pack import PACK, transform_layout
from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.features import Describer
from tvm_codl.cost.schedules import Schedules
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.reuse import Tunings
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload


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


def known_and_built(
    processor: Processor, lanes: int, sizes: Iterable[tuple[int, int, int]], kernel: int
) -> Iterator[tuple[Schedules, str]]:
    """What the cost model knows of convolutions by size, input and output channels, and the text of what they are made."""
    cpu = cpu_target(lanes=lanes)
    target = gpu_target(cpu) if processor == "gpu" else cpu
    describe = Describer(Tunings(), processor, DeviceFacts(cpu_lanes=lanes, gpu=Gpu(lanes=lanes)))
    for size, channels_in, channels in sizes:
        made = Network(1, size, size, channels_in)
        made.conv(0, channels, kernel=kernel)
        graph = made.graph()
        with target, scheduled(shipped=False), tvm.transform.PassContext(opt_level=3):
            packed = PACK(conv(channels_in, channels, size, size, kernel, pad=kernel // 2))
        yield describe.schedules([Workload.of(graph.operators[0], graph)]), packed.astext(show_meta_data=False)


@pytest.mark.parametrize("processor", ["cpu", "gpu"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_the_cost_model_knows_which_convolutions_are_filtered(processor: Processor, lanes: int) -> None:
    """Winograd's: many channels or few, filled up or not, a picture too large for what a GPU may leave in memory."""
    sizes = [(56, 64, 64), (14, 256, 256), (7, 512, 512), (20, 24, 20), (9, 16, 19), (12, 3, 32), (240, 64, 64)]
    known, built = [], []
    for schedules, text in known_and_built(processor, lanes, sizes, 3):
        known.append(int(schedules.filtered[0]))
        found = re.search(r"without_weight_transform\(.*tile_size=(\d)", text)
        built.append(int(found[1]) if found else 0)
    assert known == built
    assert 0 in built and 4 in built


@pytest.mark.parametrize("processor", ["cpu", "gpu"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_the_cost_model_knows_which_convolutions_are_one_row(processor: Processor, lanes: int) -> None:
    """Widths that tiles divide or not, many channels or few, filled up or not."""
    sizes = [(7, 2048, 512), (7, 64, 48), (7, 32, 20), (7, 32, 19), (13, 64, 256), (14, 64, 256), (56, 64, 256)]
    known, built = [], []
    for (size, _, _), (schedules, text) in zip(sizes, known_and_built(processor, lanes, sizes, 1), strict=True):
        known.append(int(schedules.rows_out[0]))
        built.append(1 if f"(1, 1, {size * size}, " in text else size)
    assert known == built
    assert lanes != 8 or 1 in built
