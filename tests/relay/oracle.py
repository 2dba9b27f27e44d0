"""Running networks by stock Relay, to compare a partitioned module with the one that it came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import tvm
import tvm.contrib.graph_executor
from tvm import relay

from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.relay.annotate import AnnotateCoExecution
from tvm_codl.relay.partition import PartitionCoExecution

CPU = Placement("cpu")
PASSES = {"tir.disable_cse_tir": True}


def plan_of(graph: OpGraph, placements: dict[int, Placement] | None = None, other: Placement = CPU) -> Plan:
    """A plan with some operators placed, all others ``other``."""
    placed = placements or {}
    return Plan(
        "test",
        "none",
        tuple(PlannedOperator(op.id, op.name, placed.get(op.id, other)) for op in graph.operators),
    )


def partitioned(prepared: tvm.IRModule, plan: Plan) -> tvm.IRModule:
    return tvm.transform.Sequential([AnnotateCoExecution(plan), PartitionCoExecution()])(prepared)


def random_inputs(mod: tvm.IRModule, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    kinds = relay.transform.InferType()(mod)["main"].checked_type.arg_types
    return [rng.standard_normal([int(extent) for extent in kind.shape]).astype(kind.dtype) for kind in kinds]


def run_together(mods: Sequence[tvm.IRModule], inputs: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """Each module's outputs for the same inputs, from one build."""
    params = [relay.var(f"x{index}", shape=value.shape, dtype=str(value.dtype)) for index, value in enumerate(inputs)]
    bodies, counts = [], []
    for mod in mods:
        main = relay.transform.InferType()(relay.transform.Inline()(mod))["main"]
        body = relay.bind(main.body, dict(zip(main.params, params, strict=True)))
        fields = _leaves(body, main.ret_type)
        bodies.extend(fields)
        counts.append(len(fields))
    together = tvm.IRModule.from_expr(relay.Function(params, relay.Tuple(bodies)))
    with tvm.transform.PassContext(opt_level=1, config=PASSES):
        library = relay.build(together, target="llvm -opt-level=0")
    executor = tvm.contrib.graph_executor.GraphModule(library["default"](tvm.cpu()))
    for index, value in enumerate(inputs):
        executor.set_input(f"x{index}", value)
    executor.run()
    values = iter([executor.get_output(index).numpy() for index in range(len(bodies))])
    return [[next(values) for _ in range(count)] for count in counts]


def _leaves(body: relay.Expr, kind: relay.Type) -> list[relay.Expr]:
    if not isinstance(kind, relay.TupleType):
        return [body]
    fields = body.fields if isinstance(body, relay.Tuple) else None
    return [
        leaf
        for index, field in enumerate(kind.fields)
        for leaf in _leaves(fields[index] if fields is not None else relay.TupleGetItem(body, index), field)
    ]


def assert_same(ours: Iterable[np.ndarray], theirs: Iterable[np.ndarray], what: str) -> None:
    """Same shapes and types; values up to the order of summation."""
    for got, want in zip(ours, theirs, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype), what
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=what)
