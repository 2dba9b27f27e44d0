"""The order of the passes, and what a network has gone through after each phase."""

from __future__ import annotations

import pytest
import tvm
from msgspec.structs import replace
from tvm import relay
from tvm.relay.backend import te_compiler

from tests.relay.oracle import plan_of
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model
from tvm_codl.plan.plan import Placement
from tvm_codl.records.settings import Settings
from tvm_codl.relay import pipeline
from tvm_codl.relay.calls import Site, call_pass, only_with
from tvm_codl.relay.prepared import Prepared
from tvm_codl.relay.walk import with_types


@pytest.fixture(scope="module")
def small() -> Prepared:
    return pipeline.prepare(load_model("zoo:small"))


def test_a_new_pass_is_one_line_of_a_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def note(site: Site) -> relay.Expr | None:
        seen.append(site.op)
        return None

    x = relay.var("x", shape=(1, 4, 8, 8))
    module = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.max_pool2d(x))))
    monkeypatch.setattr(pipeline, "NHWC", (*pipeline.NHWC, call_pass("Note", note)))
    pipeline.simplify(module)
    assert seen == ["layout_transform", "nn.max_pool2d", "nn.relu", "layout_transform"]


def test_passes_run_only_where_an_operator_needs_them() -> None:
    seen: list[str] = []
    note = call_pass("Note", lambda site: seen.append(site.op))
    x = relay.var("x", shape=(1, 4))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.exp(x)))))
    pipeline.run([only_with(("nn.dense", "nn.conv2d"), note)], module)
    assert not seen
    pipeline.run([only_with(("nn.dense", "exp"), note)], module)
    assert seen == ["exp", "nn.relu"]


def test_types_are_inferred_only_where_one_is_missing(small: Prepared) -> None:
    module = small.module
    assert with_types(module).same_as(module)
    main = module["main"]
    changed = relay.Function(main.params, relay.Tuple([main.body, relay.nn.relu(main.body)]))
    assert with_types(tvm.IRModule.from_expr(changed))["main"].body.fields[1].checked_type == main.body.checked_type


def test_float16_comes_last_and_only_where_the_plan_asks_for_it(small: Prepared) -> None:
    plan = plan_of(small.graph)
    names = ["AnnotateCoExecution", "PartitionCoExecution"]
    assert [p.info.name for p in pipeline.partitioning(plan)] == names
    half = replace(plan, settings=Settings(gpu_float="float16"))
    assert [p.info.name for p in pipeline.partitioning(half)] == [*names, "GpuFloat16"]


def test_an_illegal_plan_is_refused(small: Prepared) -> None:
    plan = plan_of(small.graph, {0: Placement("split", "height", 10**6)})
    with pytest.raises(UserError):
        pipeline.partition(small, plan)


def test_builds_ask_once_what_tvm_was_built_with() -> None:
    """Reading the answer anew for each dimension took half of a build's time."""
    assert te_compiler.libinfo() is te_compiler.libinfo()
