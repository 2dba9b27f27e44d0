"""What is built from a partition: which tensor lies how in memory, what each region takes, and where one waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.runtime.partitions import Network, convolutions
from tvm_codl.build.dataflow import Argument, Dataflow, Value, read
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.build.kernels import compile_regions
from tvm_codl.build.program import write
from tvm_codl.errors import UserError
from tvm_codl.graph.slab import outermost

SHAPE = (1, 8, 8, 16)  # 512 bytes a row: aligned for every device


def relu(x: relay.Expr) -> relay.Expr:
    return relay.nn.relu(x)


def cut(x: relay.Expr, lo: int, hi: int, axis: int) -> relay.Expr:
    return relay.strided_slice(x, [lo], [hi], strides=[1], axes=[axis])


def split(net: Network, x: relay.Expr, axis: int, at: int, shape: tuple[int, ...] = SHAPE) -> relay.Expr:
    """A rectifier split along ``axis``, each side on the part that it needs."""
    parts = []
    for processor, lo, hi in (("cpu", 0, at), ("gpu", at, shape[axis])):
        part = tuple(hi - lo if a == axis else extent for a, extent in enumerate(shape))
        parts.append(net.region(processor, relu, cut(x, lo, hi, axis), shapes=[part]))
    return relay.concatenate(parts, axis=axis)


def variable() -> relay.Var:
    return relay.var("x", shape=SHAPE)


def program(flow: Dataflow) -> dict[str, Any]:
    kernels = {}
    for processor, target in (("cpu", "llvm"), ("gpu", "opencl")):
        built = compile_regions(flow, processor, tvm.target.Target(target, host="llvm"), KernelCache())
        if built is not None:
            kernels[processor] = built
    return write(flow, kernels)


def steps(program: dict[str, Any]) -> dict[str, list[str]]:
    return {side: [s["do"] for s in program[side]] for side in ("cpu", "gpu")}


# Layout.


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_pieces_are_parts_of_one_buffer_where_their_axis_lies_outermost_and_else_have_their_own(axis: int) -> None:
    net = Network()
    x = variable()
    flow = read(net.finish([x], net.region("gpu", relu, split(net, x, axis, 4), shapes=[SHAPE])))
    cpu, gpu, reader = flow.regions
    first, second = cpu.outputs + gpu.outputs
    if axis == 1:
        assert (first, second) == (Value(first.root, 1, 0, 4), Value(first.root, 1, 4, SHAPE[1]))
        assert reader.inputs == [Argument(Value(first.root))]
    else:
        assert (first, second) == (Value(first.root), Value(second.root)) and first.root != second.root
        assert reader.inputs == [Argument(first), Argument(second)]
        assert [p.name_hint.rpartition("_")[2] for p in reader.function.params] == ["0", "1"]
    wanted = Argument(Value(0, 1, 0, 4)) if axis == 1 else Argument(Value(0), (axis, 0, 4))
    assert cpu.inputs == [wanted]


@pytest.mark.parametrize(
    ("shape", "axis"), [((1, 8, 6, 4), 1), ((2, 8, 6, 4), 0), ((1, 1, 6, 4), 2), ((1, 1), 0), ((), 0)]
)
def test_the_first_axis_with_more_than_one_index_lies_outermost(shape: tuple[int, ...], axis: int) -> None:
    assert outermost(shape) == axis


def test_whoever_reads_one_piece_of_two_joins_nothing() -> None:
    net = Network()
    x = variable()
    both = split(net, x, 3, 8)
    flow = read(net.finish([x], split(net, both, 3, 8)))
    made = [value for region in flow.regions[:2] for value in region.outputs]
    assert [region.inputs for region in flow.regions[2:4]] == [[Argument(made[0])], [Argument(made[1])]]


def test_whoever_reads_parts_of_two_pieces_joins_these() -> None:
    net = Network()
    x = variable()
    both = split(net, x, 3, 8)
    flow = read(net.finish([x], split(net, both, 3, 12)))
    first, second = (region.outputs[0].root for region in flow.regions[:2])
    assert flow.regions[2].inputs == [Argument(Value(first)), Argument(Value(second), (3, 0, 4))]
    assert flow.regions[3].inputs == [Argument(Value(second), (3, 4, 8))]
    rows = read(net.finish([x], split(net, both, 1, 3)))
    assert rows.regions[2].inputs == [Argument(Value(root, 1, 0, 3)) for root in (first, second)]


def test_an_output_in_pieces_is_joined_by_the_cpu() -> None:
    net = Network()
    x = variable()
    flow = read(net.finish([x], split(net, x, 3, 4)))
    cpu, gpu, joining = flow.regions
    assert joining.processor == "cpu"
    assert joining.inputs == [Argument(cpu.outputs[0]), Argument(gpu.outputs[0])]
    assert flow.outputs == [Argument(joining.outputs[0])]


def test_a_tensor_that_is_sliced_along_two_axes_is_taken_whole_and_cut_by_its_readers() -> None:
    net = Network()
    x = variable()
    whole = net.region("gpu", relu, x, shapes=[SHAPE])
    a = net.region("cpu", relu, cut(whole, 0, 4, 2), shapes=[(1, 8, 4, 16)])
    b = net.region("cpu", relu, cut(whole, 0, 4, 3), shapes=[(1, 8, 8, 4)])
    flow = read(net.finish([x], relay.Tuple([a, b])))
    root = flow.regions[0].outputs[0].root
    assert [r.inputs[0] for r in flow.regions[1:]] == [
        Argument(Value(root), (2, 0, 4)),
        Argument(Value(root), (3, 0, 4)),
    ]


# Slices of slices and of joins.


def test_a_slice_of_a_slice_counts_from_the_buffers_start() -> None:
    net = Network()
    x = variable()
    inner = cut(cut(x, 2, 8, 1), 1, 3, 1)
    flow = read(net.finish([x], net.region("cpu", relu, inner, shapes=[(1, 2, 8, 16)])))
    assert flow.regions[0].inputs == [Argument(Value(0, 1, 3, 5))]


def test_a_halo_across_a_join_is_one_part_of_its_buffer() -> None:
    net = Network()
    x = variable()
    joined = split(net, x, 1, 4)
    below = net.region("gpu", relu, cut(joined, 3, 8, 1), shapes=[(1, 5, 8, 16)])
    flow = read(net.finish([x], below))
    root = flow.regions[0].outputs[0].root
    assert flow.regions[2].inputs == [Argument(Value(root, 1, 3, 8))]


def test_a_piece_that_is_used_on_its_own_is_found_inside_the_join() -> None:
    net = Network()
    x = variable()
    top = net.region("cpu", relu, cut(x, 0, 4, 1), shapes=[(1, 4, 8, 16)])
    bottom = net.region("gpu", relu, cut(x, 4, 8, 1), shapes=[(1, 4, 8, 16)])
    again = net.region("gpu", relu, cut(bottom, 1, 4, 1), shapes=[(1, 3, 8, 16)])
    narrow = net.region("gpu", relu, cut(bottom, 2, 5, 2), shapes=[(1, 4, 3, 16)])
    flow = read(net.finish([x], relay.Tuple([relay.concatenate([top, bottom], axis=1), again, narrow])))
    found = {r.name: r.inputs[0] for r in flow.regions}
    home = next(r.outputs[0] for r in flow.regions if r.name == "codl_gpu_1")
    assert (home.axis, home.lo, home.hi) == (1, 4, 8)
    assert found["codl_gpu_2"] == Argument(Value(home.root, 1, 5, 8))
    assert found["codl_gpu_3"] == Argument(home, (2, 2, 5))


@pytest.mark.parametrize(
    "body",
    [
        lambda net, x: relay.nn.relu(net.region("cpu", relu, x, shapes=[SHAPE])),
        lambda net, x: cut(cut(net.region("cpu", relu, x, shapes=[SHAPE]), 0, 4, 1), 0, 4, 2),
    ],
)
def test_a_main_that_breaks_the_contract_is_refused(body: Any) -> None:
    net = Network()
    x = variable()
    with pytest.raises(UserError, match="@main"):
        read(net.finish([x], body(net, x)))


# Waits.


def test_one_processor_never_waits() -> None:
    for processor, space in (("cpu", {"cpu"}), ("gpu", {"gpu", "shared"})):
        net = Network()
        x = variable()
        y = net.region(processor, relu, net.region(processor, relu, x, shapes=[SHAPE]), shapes=[SHAPE])
        made = program(read(net.finish([x], y)))
        assert made["events"] == 0
        assert "wait" not in str(steps(made)) and "signal" not in str(steps(made))
        assert {b["space"] for b in made["buffers"]} <= space


def test_halves_that_need_nothing_of_each_other_do_not_wait() -> None:
    """Two split operators without a halo, cut alike: a chain."""
    net = Network()
    x = variable()
    made = program(read(net.finish([x], split(net, split(net, x, 1, 4), 1, 4))))
    assert made["events"] == 0
    assert steps(made)["cpu"] == ["call", "call"]
    # The input goes over once, and of the result only what the GPU made comes back.
    assert steps(made)["gpu"] == ["to_gpu", "call", "call", "to_cpu"]
    shown = next(s["view"] for s in made["gpu"] if s["do"] == "to_cpu")
    assert (shown["offset"], shown["shape"]) == (4 * 512, [1, 4, 8, 16])


def test_cuts_that_move_cost_one_wait_on_the_side_that_lacks_rows() -> None:
    net = Network()
    x = variable()
    made = program(
        read(net.finish([x], split(net, split(net, x, 1, 4), 1, 6)))
    )  # the CPU needs rows 4 and 5 of the GPU
    assert made["events"] == 1
    assert steps(made)["cpu"] == ["call", "wait", "call"]
    assert steps(made)["gpu"].count("wait") == 0
    assert steps(made)["gpu"].count("signal") == 1


def test_a_halo_makes_both_wait_once() -> None:
    """Three convolutions split by rows, channels, rows: at each of the two changes both sides need the other's part."""
    made = program(read(convolutions()[0]))
    for side in ("cpu", "gpu"):
        assert steps(made)[side].count("wait") == 2
        assert steps(made)[side].count("signal") == 2
    assert made["events"] == 4


def test_a_wait_for_the_last_result_stands_for_all_before_it() -> None:
    net = Network()
    x = variable()
    a = net.region("gpu", relu, x, shapes=[SHAPE])
    b = net.region("gpu", relu, a, shapes=[SHAPE])
    c = net.region("cpu", lambda p, q: p + q, b, a, shapes=[SHAPE, SHAPE])
    d = net.region("cpu", lambda p, q: p + q, c, a, shapes=[SHAPE, SHAPE])
    made = program(read(net.finish([x], d)))
    assert made["events"] == 1
    assert steps(made)["cpu"] == ["wait", "call", "call"]


def test_ping_pong_waits_at_every_crossing() -> None:
    net = Network()
    x = variable()
    y: relay.Expr = x
    for k in range(6):
        y = net.region(("gpu", "cpu")[k % 2], relu, y, shapes=[SHAPE])
    made = program(read(net.finish([x], y)))
    assert steps(made)["cpu"].count("wait") == 3
    assert steps(made)["gpu"].count("wait") == 2
    assert made["events"] == 5


def test_every_signal_is_awaited_and_every_wait_signalled_once_by_the_other_side() -> None:
    made = program(read(convolutions(row=4)[0]))
    for here, there in (("cpu", "gpu"), ("gpu", "cpu")):
        signals = [s["event"] for s in made[here] if s["do"] == "signal"]
        waits = [s["event"] for s in made[there] if s["do"] == "wait"]
        assert sorted(signals) == sorted(waits)
    spaces = {made["buffers"][i["view"]["buffer"]]["space"] for i in made["inputs"]}
    assert spaces == {"shared"}


def test_views_lie_inside_their_buffers() -> None:
    made = program(read(convolutions(extent=7, channels=3, row=3, channel=1)[0]))
    views = [
        v for s in [*made["cpu"], *made["gpu"]] for v in [*s.get("args", []), *([s["view"]] if "view" in s else [])]
    ]
    views += [port["view"] for port in [*made["inputs"], *made["outputs"]]]
    assert views
    for view in views:
        size = int(np.prod(view["shape"])) * np.dtype(view["dtype"]).itemsize
        assert view["offset"] + size <= made["buffers"][view["buffer"]]["bytes"]
