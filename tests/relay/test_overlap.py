"""Pieces that overlap: each processor makes the rows of a halo itself, and the network computes what it did."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relay

from tests.examples import examples
from tests.relay.networks import NETWORKS, Weights, conv, image
from tests.relay.oracle import assert_same, partitioned, plan_of, random_inputs, run_together
from tests.relay.test_partition import regions
from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import Axis, NoSplit, axes, piece
from tvm_codl.plan.plan import Placement
from tvm_codl.relay.annotate import from_text, to_text
from tvm_codl.relay.pipeline import extract
from tvm_codl.relay.walk import in_order

SETTINGS = settings(
    max_examples=examples(12),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def rows(at: int, *over: int) -> Placement:
    return Placement("split", "height", at, over if over else (0, 0))  # type: ignore[arg-type]


def three() -> tvm.IRModule:
    """Three 3x3 convolutions of 10 rows."""
    w, y = Weights(), image(4)
    for _ in range(3):
        y = conv(y, w, 4, 4)
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y))


def overlap(draw: Any, axis: Axis, at: int) -> tuple[int, int]:
    """Any legal one of a cut."""
    behind, before = (axis.extent - 1) // axis.granule - at // axis.granule, at // axis.granule - 1
    return axis.granule * draw(st.integers(0, behind)), axis.granule * draw(st.integers(0, before))


def any_placement(draw: Any, graph: OpGraph, id: int) -> Placement:
    operator = graph.operators[id]
    legal = list(axes(operator, graph).values())
    on = draw(st.sampled_from(["cpu", "gpu", *["split"] * 4]))
    if on != "split" or not legal:
        return Placement("gpu" if on == "gpu" else "cpu")
    axis = draw(st.sampled_from(legal))
    at = axis.granule * draw(st.integers(1, (axis.extent - 1) // axis.granule))
    placement = Placement("split", axis.name, at, overlap(draw, axis, at))
    try:
        for lo, hi in placement.parts(axis.extent):
            piece(operator, graph, axis.name, lo, hi)
    except NoSplit:
        return Placement("cpu")
    return placement


def test_a_run_with_the_halos_it_needs_is_one_region_on_each_processor() -> None:
    mod = three()
    graph, _, prepared = extract(mod)
    plan = plan_of(graph, {0: rows(4, 2, 2), 1: rows(4, 1, 1), 2: rows(4)})
    split = partitioned(prepared, plan)
    assert regions(split) == {"codl_cpu_0": "0,1,2", "codl_gpu_1": "0,1,2"}
    whole, ours = run_together([mod, split], random_inputs(mod))
    assert_same(ours, whole, "a run with overlaps")


def test_the_processor_whose_halo_is_too_small_waits_and_the_other_does_not() -> None:
    mod = three()
    graph, _, prepared = extract(mod)
    split = partitioned(prepared, plan_of(graph, {0: rows(4, 0, 1), 1: rows(4, 1, 1), 2: rows(4)}))
    # The CPU's first piece has no row too many, so its second one takes what the GPU made.
    assert regions(split) == {"codl_cpu_0": "0", "codl_gpu_1": "0", "codl_cpu_2": "1,2", "codl_gpu_3": "1,2"}
    whole, ours = run_together([mod, split], random_inputs(mod))
    assert_same(ours, whole, "half of an overlap")


def test_what_is_joined_is_joined_of_shares() -> None:
    """``@main`` still joins two whole results, whose rows together are the tensor's, each once."""
    mod = three()
    graph, _, prepared = extract(mod)
    split = partitioned(prepared, plan_of(graph, {0: rows(4, 2, 2), 1: rows(5, 1, 3), 2: rows(6, 2, 1)}))
    joins = [
        e for e in in_order(split["main"].body) if isinstance(e, relay.Call) and e.op == tvm.ir.Op.get("concatenate")
    ]
    assert joins
    for join in joins:
        shapes = [tuple(int(d) for d in field.checked_type.shape) for field in join.args[0].fields]
        assert sum(shape[1] for shape in shapes) == 10
        for field in join.args[0].fields:
            made = field.tuple_value if isinstance(field, relay.TupleGetItem) else field
            assert isinstance(made.op, relay.GlobalVar)
    whole, ours = run_together([mod, split], random_inputs(mod))
    assert_same(ours, whole, "joined")


@SETTINGS
@given(st.data())
def test_any_overlap_of_a_run_of_windows_gives_the_unsplit_answer(data: st.DataObject) -> None:
    draw = data.draw
    w, y, channels = Weights(), image(4, rows=draw(st.integers(8, 20))), 4
    for _ in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from(["conv", "conv", "depthwise", "pool", "residual"]))
        kernel, stride = draw(st.sampled_from([1, 3, 5])), draw(st.sampled_from([1, 1, 2]))
        if kind == "pool":
            y = relay.nn.max_pool2d(y, (3, 3), strides=(1, 1), padding=(1, 1), layout="NHWC")
        elif kind == "depthwise":
            y = conv(y, w, channels, channels, kernel, stride, groups=channels)
        elif kind == "residual":
            y = relay.nn.relu(relay.add(conv(y, w, channels, channels, kernel), y))
        else:
            y = conv(y, w, channels, channels, kernel, stride)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y)))
    check_any(draw, mod)


@pytest.mark.parametrize("name", NETWORKS)
@settings(SETTINGS, max_examples=examples(2))
@given(st.data())
def test_any_overlap_of_a_network_gives_the_unsplit_answer(name: str, data: st.DataObject) -> None:
    check_any(data.draw, NETWORKS[name]())


def check_any(draw: Any, mod: tvm.IRModule) -> None:
    """Three plans, all placements drawn."""
    graph, _, prepared = extract(mod)
    plans = [{o.id: any_placement(draw, graph, o.id) for o in graph.operators} for _ in range(3)]
    split = [partitioned(prepared, plan_of(graph, plan)) for plan in plans]
    whole, *parts = run_together([mod, *split], random_inputs(mod))
    for plan, outputs in zip(plans, parts, strict=True):
        assert_same(outputs, whole, f"{plan} of\n{mod}")


@pytest.mark.parametrize(
    "placement", [Placement("gpu"), rows(4), rows(4, 1, 2), Placement("split", "channels", 8, (0, 4))]
)
def test_a_mark_says_the_overlap(placement: Placement) -> None:
    assert from_text(to_text(placement)) == placement
    assert to_text(rows(4)) == "split:height:4" and to_text(rows(4, 1, 2)) == "split:height:4:1:2"


@pytest.mark.parametrize("placement", [rows(4, 6, 0), rows(4, 0, 4), rows(4, -1, 0)])
def test_an_overlap_that_leaves_the_axis_is_refused(placement: Placement) -> None:
    graph, _, prepared = extract(three())
    with pytest.raises(UserError, match="cannot overlap"):
        partitioned(prepared, plan_of(graph, {0: placement}))
