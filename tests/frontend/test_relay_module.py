"""Relay modules, as frontends and ``relay.testing`` make them, against TVM's own executor."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay import testing

from tests.relay.oracle import assert_same, partitioned, plan_of, run_together
from tests.relay.test_networks import random_placements
from tvm_codl.errors import UserError
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.frontend.relay_module import from_relay
from tvm_codl.relay.model import LoadedModel
from tvm_codl.relay.pipeline import prepare

Workload = tuple[tvm.IRModule, dict[str, Any]]

#: Small pictures, all operators.
WORKLOADS: dict[str, Callable[[], Workload]] = {
    "resnet18": lambda: testing.resnet.get_workload(num_layers=18, num_classes=10, image_shape=(3, 32, 32)),
    "mobilenet": lambda: testing.mobilenet.get_workload(num_classes=10, image_shape=(3, 64, 64)),
    "squeezenet_v1_1": lambda: testing.squeezenet.get_workload(version="1.1", num_classes=10, image_shape=(3, 64, 64)),
    "dcgan": lambda: testing.dcgan.get_workload(1, oshape=(3, 64, 64), ngf=16, random_len=20),
    "mlp": lambda: testing.mlp.get_workload(1, num_classes=10),
}


def assert_right_under_random_plans(model: LoadedModel, seeds: range = range(1)) -> None:
    """Each plan's module, run by stock Relay, gives the reference's answer, of which it knows nothing."""
    prepared = prepare(model)
    inputs = model.sample_inputs(seed=5)
    wanted = reference_outputs(model, inputs)
    others = reference_outputs(model, model.sample_inputs(seed=6))
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(wanted, others, strict=True)), "the answer tells nothing"
    plans = [plan_of(prepared.graph, random_placements(prepared.graph, seed)) for seed in seeds]
    assert all(sum(line.placement.on == "split" for line in plan.operators) > 1 for plan in plans)
    modules = [partitioned(prepared.module, plan) for plan in plans]
    for plan, outputs in zip(plans, run_together(modules, list(inputs.values())), strict=True):
        assert_same(outputs, wanted, f"{model.name} under {[(p.name, p.placement) for p in plan.operators]}")


def with_signal(params: dict[str, Any]) -> dict[str, Any]:
    """With weights that keep the size of what they multiply: behind relay.testing's own, mobilenet answers 0.1 to anything."""
    random = np.random.default_rng(2)
    return {
        name: (random.standard_normal(w.shape) * np.sqrt(2 / np.prod(w.shape[1:]))).astype("float32")
        if w.ndim > 1
        else w
        for name, w in ((name, value.numpy()) for name, value in params.items())
    }


def with_slow_ones(names: Iterable[str]) -> list[Any]:
    slow = ("mobilenet", "squeezenet_v1_1")
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


@pytest.mark.parametrize("name", with_slow_ones(WORKLOADS))
def test_random_plans_give_relays_own_answer(name: str) -> None:
    mod, params = WORKLOADS[name]()
    model = from_relay(mod, with_signal(params), name=name)
    assert [(n, d) for n, _, d in model.inputs] == [("data", "float32")]
    assert (model.name, model.outputs) == (name, ("output",))
    assert_right_under_random_plans(model)


def small(shape: tuple[Any, ...] = (1, 6, 6, 4), name: str = "x") -> tvm.IRModule:
    """In NHWC, with what inference drops: batch normalisation and dropout; two outputs."""
    x = relay.var(name, shape=shape)
    y = relay.nn.conv2d(
        x, relay.var("w", shape=(3, 3, 4, 8)), padding=(1, 1), channels=8, kernel_size=(3, 3),
        data_layout="NHWC", kernel_layout="HWIO",
    )  # fmt: skip
    y = relay.nn.batch_norm(y, *(relay.var(name, shape=(8,)) for name in ("gamma", "beta", "mean", "var")), axis=3)[0]
    y = relay.nn.dropout(relay.nn.relu(y))
    body = relay.Tuple([y, relay.nn.softmax(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y, layout="NHWC")))])
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    made = {name: random.standard_normal(8).astype("float32") for name in ("gamma", "beta", "mean")}
    return {**made, "var": np.full(8, 2, "float32"), "w": random.standard_normal((3, 3, 4, 8)).astype("float32")}


def test_a_users_own_module_in_nhwc() -> None:
    mod, params = small(), weights()
    before = mod["main"]
    model = from_relay(mod, params)
    assert mod["main"].same_as(before)
    assert (model.inputs, model.outputs) == ((("x", (1, 6, 6, 4), "float32"),), ("output0", "output1"))
    assert "layout_transform" not in str(model.module)
    assert_right_under_random_plans(model)


def test_shapes_and_samples_are_given_by_name() -> None:
    mod, params = small((relay.Any(), 6, relay.Any(), 4)), weights()
    for given in ((1, 6, 6, 4), [np.int64(1), 6, 6, 4]):
        model = from_relay(mod, params, {"x": given})
        assert model.inputs == (("x", (1, 6, 6, 4), "float32"),)
    assert_right_under_random_plans(model)
    picture = np.arange(144, dtype="float32").reshape(1, 6, 6, 4)
    model = from_relay(mod, params, {"x": picture})
    picture[:] = 0
    (value,) = model.sample_inputs(seed=3).values()
    assert np.array_equal(value.ravel(), np.arange(144))
    assert [answer.shape for answer in reference_outputs(model, {"x": value})] == [(1, 6, 6, 8), (1, 8)]


def test_a_shape_that_is_computed_from_shapes_is_static() -> None:
    x = relay.var("x", shape=(2, relay.Any()))
    mod = tvm.IRModule.from_expr(
        relay.Function([x], relay.reshape(relay.nn.relu(x), relay.shape_of(relay.transpose(x))))
    )
    model = from_relay(mod, inputs={"x": (2, 3)})
    (answer,) = reference_outputs(model, {"x": np.arange(6, dtype="float32").reshape(2, 3)})
    assert answer.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_outputs_keep_the_names_that_the_frontend_left() -> None:
    mod = small()
    mod["main"] = mod["main"].with_attr("output_tensor_names", ["map", "classes"])
    assert from_relay(mod, weights()).outputs == ("map", "classes")


def test_a_model_is_data_also_after_its_reference_ran() -> None:
    model = from_relay(small(), weights(), name="mine")
    inputs = model.sample_inputs()
    wanted = reference_outputs(model, inputs)
    again = pickle.loads(pickle.dumps(model))
    assert (again.name, again.inputs, again.outputs) == (model.name, model.inputs, model.outputs)
    assert_same(reference_outputs(again, inputs), wanted, "pickled")


def test_quantised_operators_are_taken_apart() -> None:
    x = relay.var("x", shape=(1, 4, 6, 6))
    scale, zero = relay.const(0.05), relay.const(3)
    y = relay.qnn.op.dequantize(relay.qnn.op.quantize(x, scale, zero, out_dtype="uint8"), scale, zero)
    assert_right_under_random_plans(from_relay(of(relay.nn.relu(relay.nn.max_pool2d(y, (2, 2))), x)))


def test_an_input_that_nothing_reads_stays() -> None:
    x, unused = relay.var("x", shape=(2, 3)), relay.var("self", shape=(2,))
    model = from_relay(of(relay.nn.relu(x), unused, x))
    assert [name for name, _, _ in model.inputs] == ["self", "x"]
    assert reference_outputs(model, model.sample_inputs())[0].shape == (2, 3)


def of(body: relay.Expr, *params: relay.Var) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function(list(params), body))


def control_flow() -> tvm.IRModule:
    x, flag = relay.var("x", shape=(2, 3)), relay.var("flag", shape=(), dtype="bool")
    return of(relay.If(flag, relay.nn.relu(x), relay.exp(x)), x, flag)


def several_functions() -> tvm.IRModule:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))
    mod, other = tvm.IRModule(), relay.GlobalVar("half")
    mod[other] = relay.Function([y], relay.nn.relu(y))
    mod["main"] = relay.Function([x], other(x))
    return mod


def closure() -> tvm.IRModule:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))
    return of(relay.Call(relay.Function([y], relay.nn.relu(y)), [x]), x)


def algebraic() -> tvm.IRModule:
    mod, x = tvm.IRModule(), relay.var("x", shape=(2, 3))
    _, cons, nil = relay.prelude.Prelude(mod).mod.get_type("List")
    mod["main"] = relay.Function([x], cons(x, nil()))
    return mod


def untyped() -> tvm.IRModule:
    x = relay.var("x")
    return of(relay.nn.relu(x), x)


def too_small() -> tvm.IRModule:
    """Relay types it: the window is larger than the picture."""
    x = relay.var("x", shape=(1, 1, 4, 4))
    return of(relay.nn.relu(relay.nn.avg_pool2d(x, (8, 8))), x)


def selects_by_values() -> tvm.IRModule:
    x = relay.var("x", shape=(4,))
    return of(relay.cast(relay.argwhere(x), "float32"), x)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (control_flow, "If"),
        (several_functions, "@half"),
        (closure, "Function"),
        (algebraic, "Cons|Nil"),
        (selects_by_values, "argwhere"),
        (lambda: small((relay.Any(), 6, 6, 4)), "'x'"),
        (lambda: small((1, 6, 6, 3)), "typed"),
        (lambda: small(name="w"), "2 variables"),
        (untyped, "no tensor"),
        (lambda: small()["main"], "Function"),
        (tvm.IRModule, "no @main"),
        (too_small, "avg_pool2d"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_named(build: Callable[[], Any], named: str) -> None:
    with pytest.raises(UserError, match=named) as error:
        from_relay(build(), weights())
    assert error.value.what


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": {"y": (1, 6, 6, 4)}},
        {"inputs": {"w": (3, 3, 4, 8)}},
        {"inputs": {"x": (1, 6, 6, 5)}},
        {"inputs": {"x": (1, 0, 6, 4)}},
        {"inputs": {"x": (1, 6, 6)}},
        {"inputs": {"x": 6}},
        {"inputs": {"x": "1664"}},
        {"inputs": {"x": np.zeros((1, 6, 6, 4))}},
        {"params": {**weights(), "gamma": np.zeros(7, "float32")}},
        {"params": {**weights(), "gamma": np.zeros(8)}},
        {"name": "a/b"},
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        from_relay(small((1, relay.Any(), 6, 4)), **{"params": weights(), **wrong})
