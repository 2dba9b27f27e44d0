"""The GPU's regions in float16: where the casts are, what stays float32, and how much the answer changes."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm.relay.transform.mixed_precision as mixed
from tvm import relay
from tvm.contrib.graph_executor import GraphModule

from tvm_codl.frontend.load import load_model
from tvm_codl.measure.answers import answer_errors
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.records.settings import DEFAULT, Settings
from tvm_codl.relay.float16 import CONVERSION, GpuFloat16
from tvm_codl.relay.pipeline import partition, prepare
from tvm_codl.relay.prepared import Prepared


def planned(prepared: Prepared, settings: Settings = DEFAULT) -> Plan:
    """Convolutions split, the rest in turn on the two processors."""
    lines = []
    for operator in prepared.graph.operators:
        height = prepared.axes[operator.id].get("height")
        whole = Placement("gpu" if operator.id % 3 else "cpu")
        split = Placement("split", "height", height.extent // 2) if height and operator.kind == "nn.conv2d" else whole
        lines.append(PlannedOperator(operator.id, operator.name, split))
    return Plan(prepared.name, "phone", tuple(lines), settings=settings)


def all_gpu(prepared: Prepared) -> Plan:
    lines = [PlannedOperator(o.id, o.name, Placement("gpu")) for o in prepared.graph.operators]
    return Plan(prepared.name, "phone", tuple(lines))


def answers(mod: tvm.IRModule, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_cse_tir": True}):
        built = relay.build(mod, "llvm")
    runner = GraphModule(built["default"](tvm.cpu()))
    for name, value in inputs.items():
        runner.set_input(name, value)
    runner.run()
    return [runner.get_output(i).numpy() for i in range(runner.get_num_outputs())]


def types_in(function: relay.Function, kind: type) -> set[str]:
    found: set[str] = set()

    def visit(node: relay.Expr) -> None:
        if isinstance(node, kind) and isinstance(node.checked_type, tvm.ir.TensorType):
            found.add(str(node.checked_type.dtype))

    relay.analysis.post_order_visit(function.body, visit)
    return found


@pytest.fixture(scope="module")
def small() -> Prepared:
    return prepare(load_model("zoo:small"))


def test_regions_of_the_gpu_keep_their_ends_and_hold_float16(small: Prepared) -> None:
    before = partition(small, planned(small))
    after = GpuFloat16()(before)
    assert {v.name_hint for v in before.get_global_vars()} == {v.name_hint for v in after.get_global_vars()}
    halved = 0
    for variable in before.get_global_vars():
        name = variable.name_hint
        was, now = before[name], after[name]
        assert tvm.ir.structural_equal(was.checked_type, now.checked_type), name
        assert (was.attrs is None) == (now.attrs is None)
        if "gpu" in name:
            assert {k: str(was.attrs[k]) for k in was.attrs.keys()} == {k: str(now.attrs[k]) for k in now.attrs.keys()}  # noqa: SIM118
            halved += "float16" in types_in(now, relay.Call)
            sums = [str(c.attrs.out_dtype) for c in calls(now, "nn.conv2d")]
            assert set(sums) <= {"float32"}
            for weight in (c.args[1] for c in calls(now, "nn.conv2d")):
                assert isinstance(weight, relay.Constant) and weight.data.dtype == "float16"
        else:
            assert tvm.ir.structural_equal(was, now), name
    assert halved > 2


def test_operators_of_one_region_pass_float16_on(small: Prepared) -> None:
    (name,) = (v.name_hint for v in partition(small, all_gpu(small)).get_global_vars() if v.name_hint != "main")
    function = GpuFloat16()(partition(small, all_gpu(small)))[name]
    assert calls(function, "annotation.stop_fusion")
    back = [c for c in calls(function, "cast") if str(c.checked_type.dtype) == "float32"]
    assert len(back) <= 2  # one operator that TVM's lists keep float32, and the end


def calls(function: relay.Function, name: str) -> list[relay.Call]:
    found: list[relay.Call] = []

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op) and node.op.name == name:
            found.append(node)

    relay.analysis.post_order_visit(function.body, visit)
    return found


def test_the_answer_changes_by_what_float16_rounds_away(small: Prepared) -> None:
    inputs = small.model.sample_inputs()
    for plan in (planned(small), all_gpu(small)):
        mod = partition(small, plan)
        error = answer_errors(answers(GpuFloat16()(mod), inputs), answers(mod, inputs))[1]
        assert 0 < error < 5e-3


def test_what_float16_cannot_hold_is_an_infinite_error() -> None:
    wanted = [np.array([1.0, 7e4], "float32")]
    with np.errstate(over="ignore"):
        assert answer_errors([wanted[0].astype("float16")], wanted)[1] == np.inf
    assert answer_errors([np.array([np.nan, 1.0], "float32")], wanted)[1] == np.inf
    assert answer_errors([np.array([1.0, 7.07e4], "float32")], wanted)[1] == pytest.approx(0.01)


def test_tvms_own_lists_are_as_before(small: Prepared) -> None:
    before = [tvm.ir.Op.get(name).get_attr(CONVERSION) for name in mixed.DEFAULT_ALWAYS_LIST]
    GpuFloat16()(partition(small, all_gpu(small)))
    after = [tvm.ir.Op.get(name).get_attr(CONVERSION) for name in mixed.DEFAULT_ALWAYS_LIST]
    assert [f.handle.value for f in before] == [f.handle.value for f in after]


def test_the_kernels_for_the_gpu_can_be_written_in_float16(small: Prepared) -> None:
    """PoCL has no float16 here, so the kernels are written and not run; each kernel that reads half asks for it."""
    from tvm_codl.build import dataflow
    from tvm_codl.build.kernel_cache import KernelCache
    from tvm_codl.build.kernels import compile_regions
    from tvm_codl.kernels.target import cpu_target, gpu_target

    flow = dataflow.read(partition(small, planned(small, Settings(gpu_float="float16"))))
    cpu = cpu_target()
    kernels = compile_regions(flow, "gpu", tvm.target.Target(gpu_target(cpu), host=cpu), KernelCache())
    assert kernels is not None
    assert {str(w.dtype) for w in kernels.weights.values()} == {"float16"}
    for root in flow.roots:
        assert root.dtype == "float32"
    source = "".join(kernel.source for kernel in kernels.kernels.values())
    assert "cl_khr_fp16" in source and "half" in source
