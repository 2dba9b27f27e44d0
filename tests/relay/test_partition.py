"""What a partitioned module looks like: regions, their attributes, and what passes between them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay

import tvm_codl as codl
from tests.relay.networks import NETWORKS, Weights, conv, image
from tests.relay.oracle import PASSES, assert_same, partitioned, plan_of, random_inputs, run_together
from tvm_codl.errors import UserError
from tvm_codl.plan.plan import Placement
from tvm_codl.relay.annotate import AnnotateCoExecution
from tvm_codl.relay.partition import PartitionCoExecution
from tvm_codl.relay.pipeline import extract
from tvm_codl.relay.walk import in_order

GPU = Placement("gpu")


def regions(mod: tvm.IRModule) -> dict[str, str]:
    """The operators of each region, in running order."""
    found = {var.name_hint: function for var, function in mod.functions_items() if var.name_hint != "main"}
    return {
        name: str(found[name].attrs["codl.operators"]) for name in sorted(found, key=lambda n: int(n.rsplit("_", 1)[1]))
    }


def chain_of_three() -> tvm.IRModule:
    """Convolution, depthwise convolution, pointwise convolution."""
    w, x = Weights(), image(4)
    y = conv(conv(x, w, 4, 6), w, 6, 6, groups=6)
    return tvm.IRModule.from_expr(relay.Function([x], conv(y, w, 6, 4, k=1)))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("processor", ["cpu", "gpu"])
def test_one_processor_is_one_region(name: str, processor: str) -> None:
    graph, _, prepared = extract(NETWORKS[name]())
    mod = partitioned(prepared, plan_of(graph, other=Placement(processor)))  # type: ignore[arg-type]
    assert regions(mod) == {f"codl_{processor}_0": ",".join(str(op.id) for op in graph.operators)}


def test_region_attributes() -> None:
    graph, _, prepared = extract(chain_of_three())
    mod = partitioned(prepared, plan_of(graph, {0: GPU}))
    function = mod["codl_gpu_0"]
    assert str(function.attrs["global_symbol"]) == "codl_gpu_0"
    assert str(function.attrs["codl.processor"]) == "gpu"
    assert int(function.attrs["codl.chain"]) == -1
    assert "Primitive" not in function.attrs
    assert regions(mod) == {"codl_gpu_0": "0", "codl_cpu_1": "1,2"}


def test_cut_at_the_same_channel_needs_nothing_from_the_other_side() -> None:
    """A depthwise convolution reads only its own channels: its pieces join the regions before."""
    graph, _, prepared = extract(chain_of_three())
    cut = Placement("split", "channels", 2)
    mod = partitioned(prepared, plan_of(graph, {0: cut, 1: cut}))
    assert regions(mod) == {"codl_cpu_0": "0,1", "codl_gpu_1": "0,1", "codl_cpu_2": "2"}


def test_halo_ends_the_regions() -> None:
    graph, _, prepared = extract(chain_of_three())
    cut = Placement("split", "height", 4)
    mod = partitioned(prepared, plan_of(graph, {0: cut, 1: cut, 2: cut}))
    # The 3x3 depthwise convolution needs a row of the other side, the 1x1 one behind it does not.
    assert regions(mod) == {"codl_cpu_0": "0", "codl_gpu_1": "0", "codl_cpu_2": "1,2", "codl_gpu_3": "1,2"}


def test_region_ends_where_the_other_processor_waits() -> None:
    w, x = Weights(), image(4)
    first = conv(x, w, 4, 4)
    left = conv(conv(first, w, 4, 4), w, 4, 4)
    right = conv(first, w, 4, 4, k=1)
    mod = tvm.IRModule.from_expr(
        relay.Function([x], relay.nn.max_pool2d(relay.add(left, right), (2, 2), layout="NHWC"))
    )
    graph, _, prepared = extract(mod)
    side = next(op.id for op in graph.operators if op.body[0].attrs.get("kernel_size") == [1, 1])
    mod = partitioned(prepared, plan_of(graph, {side: GPU}))
    joins = [name for name, operators in regions(mod).items() if str(graph.operators[-1].id) in operators.split(",")]
    assert regions(mod)["codl_cpu_0"] == "0", "the GPU can start as soon as the first operator is done"
    assert joins[0].startswith("codl_cpu")


def test_main_holds_only_what_the_contract_allows() -> None:
    for build in NETWORKS.values():
        graph, _, prepared = extract(build())
        placements = {op.id: GPU for op in graph.operators[::2]}
        mod = partitioned(prepared, plan_of(graph, placements))
        for expr in in_order(mod["main"].body):
            assert not isinstance(expr, relay.Constant)
            if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
                assert expr.op.name in ("strided_slice", "concatenate")
            elif isinstance(expr, relay.Call):
                assert isinstance(expr.op, relay.GlobalVar)


def test_slices_and_joins_in_main() -> None:
    graph, _, prepared = extract(chain_of_three())
    cut = Placement("split", "height", 4)
    mod = partitioned(prepared, plan_of(graph, {0: cut, 1: cut}))
    for expr in in_order(mod["main"].body):
        if not isinstance(expr, relay.Call) or not isinstance(expr.op, tvm.ir.Op):
            continue
        if expr.op.name == "concatenate":
            makers = [part.op.name_hint for part in expr.args[0].fields]
            assert [name.split("_")[1] for name in makers] == ["cpu", "gpu"]
        else:
            assert [len(expr.attrs[key]) for key in ("begin", "end", "axes", "strides")] == [1, 1, 1, 1]
            assert int(expr.attrs.strides[0]) == 1


def test_weights_are_sliced_at_partitioning() -> None:
    graph, _, prepared = extract(chain_of_three())
    mod = partitioned(prepared, plan_of(graph, {0: Placement("split", "channels", 2)}))
    shapes = {
        name: [tuple(e.data.shape) for e in in_order(mod[name].body) if isinstance(e, relay.Constant)]
        for name in ("codl_cpu_0", "codl_gpu_1")
    }
    assert shapes == {"codl_cpu_0": [(3, 3, 4, 2), (2,)], "codl_gpu_1": [(3, 3, 4, 4), (4,)]}


def test_stock_executor_runs_the_partitioned_module() -> None:
    mod = NETWORKS["two_inputs_two_heads"]()
    graph, _, prepared = extract(mod)
    split = partitioned(prepared, plan_of(graph, {0: Placement("split", "height", 3), 1: GPU}))
    inputs = random_inputs(mod)
    with tvm.transform.PassContext(opt_level=3, config=PASSES):
        result = relay.create_executor("graph", mod=split, target="llvm").evaluate()(*inputs)
    flat = [result[0], result[1][0], result[1][1], result[2]]
    assert_same([value.numpy() for value in flat], run_together([mod], inputs)[0], "stock executor")


def test_passes_compose_with_others() -> None:
    mod = NETWORKS["residual_block"]()
    graph, _, prepared = extract(mod)
    plan = plan_of(graph, {0: Placement("split", "height", 2), 1: GPU})
    passes = [
        relay.transform.InferType(),
        AnnotateCoExecution(plan),
        relay.transform.InferType(),
        PartitionCoExecution(),
        relay.transform.FoldConstant(),
    ]
    split = tvm.transform.Sequential(passes)(prepared)
    whole, ours = run_together([mod, split], random_inputs(mod))
    assert_same(ours, whole, "passes")


def test_a_phase_composes_with_passes_that_leave_no_types() -> None:
    """From what a frontend gives to regions, in one list with stock passes; types are inferred where they are read."""
    mod = NETWORKS["residual_block"]()
    graph, _, _ = codl.extract(mod)
    plan = plan_of(graph, {0: Placement("split", "height", 2), 1: GPU})

    def forget_types(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        params = [relay.var(var.name_hint, var.type_annotation) for var in main.params]
        body = relay.bind(main.body, dict(zip(main.params, params, strict=True)))
        return tvm.IRModule.from_expr(relay.Function(params, body))

    forget = tvm.transform.module_pass(forget_types, opt_level=0)
    passes = [*codl.pipeline.FUSE, forget, codl.AnnotateCoExecution(plan), forget, codl.PartitionCoExecution()]
    with tvm.transform.PassContext(opt_level=3, config=codl.pipeline.CONFIG):
        split = tvm.transform.Sequential([*passes, relay.transform.FoldConstant()])(mod)
    assert len(regions(split)) > 1
    whole, ours = run_together([mod, split], random_inputs(mod))
    assert_same(ours, whole, "phases")


def test_partition_is_deterministic() -> None:
    graph, _, prepared = extract(chain_of_three())
    plan = plan_of(graph, {0: Placement("split", "height", 4)})
    assert tvm.ir.structural_equal(partitioned(prepared, plan), partitioned(prepared, plan), map_free_vars=True)


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        (Placement("split", "width", 2), "width"),
        (Placement("split", "height", 10), "outside"),
        (Placement("split", "height", 0), "outside"),
        (Placement("npu"), "npu"),  # type: ignore[arg-type]
    ],
)
def test_illegal_plans_are_refused(placement: Placement, reason: str) -> None:
    graph, _, prepared = extract(chain_of_three())
    with pytest.raises(UserError, match=reason) as error:
        partitioned(prepared, plan_of(graph, {0: placement}))
    assert "conv2d_1" in str(error.value)


def test_axis_with_rows_that_are_nothing_but_padding_is_refused() -> None:
    x = relay.var("x", shape=(1, 4, 4, 2))
    weight = relay.const(np.ones((1, 1, 2, 2), "float32"))
    y = relay.nn.conv2d(
        x, weight, padding=(2, 0, 0, 0), channels=2, kernel_size=(1, 1), data_layout="NHWC", kernel_layout="HWIO"
    )
    graph, _, prepared = extract(tvm.IRModule.from_expr(relay.Function([x], y)))
    with pytest.raises(UserError, match="cannot be split along 'height'"):
        partitioned(prepared, plan_of(graph, {0: Placement("split", "height", 2)}))


def test_partition_without_annotation_is_refused() -> None:
    _, _, prepared = extract(chain_of_three())
    with pytest.raises(UserError, match="no placement"):
        PartitionCoExecution()(prepared)
