"""Reading networks: what becomes an operator, what is folded away, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.relay.networks import NETWORKS, Weights, conv, image
from tests.relay.oracle import PASSES, assert_same, partitioned, plan_of, random_inputs, run_together
from tvm_codl.errors import UserError
from tvm_codl.graph.split import axes, piece, whole
from tvm_codl.plan.plan import Placement
from tvm_codl.relay.attributes import from_plain, to_plain
from tvm_codl.relay.extract import read
from tvm_codl.relay.piece import piece_function
from tvm_codl.relay.pipeline import extract


def module(body: relay.Expr) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


def bodies(mod: tvm.IRModule) -> list[list[str]]:
    return [[node.op for node in operator.body] for operator in extract(mod)[0].operators]


def same_when_partitioned(mod: tvm.IRModule, placements: dict[int, Placement] | None = None) -> None:
    graph, _, prepared = extract(mod)
    whole_answer, ours = run_together([mod, partitioned(prepared, plan_of(graph, placements))], random_inputs(mod))
    assert_same(ours, whole_answer, "partitioned")


def test_batch_norm_vanishes_into_the_convolution() -> None:
    w = Weights()
    y = conv(image(4), w, 4, 6)
    y = relay.nn.batch_norm(y, w(6), w(6), w(6), relay.abs(w(6)), axis=3)[0]
    y = conv(relay.nn.relu(y), w, 6, 6, groups=6)
    y = relay.nn.batch_norm(y, w(6), w(6), w(6), relay.abs(w(6)), axis=3)[0]
    assert bodies(module(relay.clip(y, 0.0, 6.0))) == [["nn.conv2d", "add", "nn.relu"], ["nn.conv2d", "add", "clip"]]


def test_names_kinds_and_shapes() -> None:
    graph, weights, _ = extract(NETWORKS["inverted_residual"]())
    kinds = [operator.kind for operator in graph.operators]
    assert kinds.count("depthwise") == 1 and kinds.count("global_avg_pool2d") == 1
    assert len({operator.name for operator in graph.operators}) == len(graph.operators)
    assert graph.operators[0].name == "conv2d_1"
    assert [operator.id for operator in graph.operators] == list(range(len(graph.operators)))
    for operator in graph.operators:
        for const in operator.consts:
            assert weights[const.key].shape == const.shape
        for output in operator.outputs:
            assert graph.tensors[output].shape in operator.body[-1].results


def test_computed_scales_are_not_folded_into_weights() -> None:
    """All weights stay constants, also behind a squeeze-and-excitation."""
    graph, _, _ = extract(NETWORKS["inverted_residual"]())
    for operator in graph.operators:
        for node in operator.body:
            if node.op == "nn.conv2d":
                assert node.args[1].source == "const"


def test_reading_twice_gives_the_same_graph() -> None:
    graph, weights, prepared = extract(NETWORKS["feature_pyramid"]())
    again, others, _ = read(prepared)
    assert again == graph
    assert all(np.array_equal(weights[key], others[key]) for key in weights)


def test_split_becomes_slices() -> None:
    x = relay.var("x", shape=(2, 6))
    left, right = relay.split(x, 2, axis=-1)
    graph, _, _ = extract(module(relay.add(relay.nn.relu(right), left)))
    assert "split" not in {node.op for operator in graph.operators for node in operator.body}
    assert "axis0" in axes(graph.operators[-1], graph)


def test_filled_tensors_are_constants() -> None:
    x = relay.var("x", shape=(2, 3))
    y = relay.add(relay.nn.relu(x), relay.ones_like(x))
    y = relay.multiply(y, relay.full(relay.const(2.0), (2, 3), "float32"))
    mod = module(relay.add(y, relay.zeros((3,), "float32")))
    (operator,) = extract(mod)[0].operators
    assert {node.op for node in operator.body} <= {"nn.relu", "add", "multiply"}
    same_when_partitioned(mod, {0: Placement("split", "axis1", 1)})


def test_outputs_that_are_inputs_and_constants() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = module(relay.Tuple([x, relay.const(np.ones((2, 2), "float32")), relay.nn.relu(x), x]))
    graph, _, _ = extract(mod)
    assert graph.outputs[0] == graph.outputs[3] == graph.inputs[0]
    assert graph.operators[-1].kind == "constant"
    same_when_partitioned(mod, {0: Placement("split", "axis0", 1)})


def test_network_that_computes_nothing() -> None:
    x = relay.var("x", shape=(2, 3))
    graph, _, prepared = extract(module(x))
    assert graph.operators == ()
    mod = partitioned(prepared, plan_of(graph))
    assert isinstance(mod["main"].body, relay.Var)


def test_unused_input_stays() -> None:
    x, unused = relay.var("x", shape=(2, 3)), relay.var("unused", shape=(1,))
    graph, _, prepared = extract(tvm.IRModule.from_expr(relay.Function([unused, x], relay.nn.relu(x))))
    assert [graph.tensors[id].name for id in graph.inputs] == ["unused", "x"]
    mod = partitioned(prepared, plan_of(graph, {0: Placement("split", "axis0", 1)}))
    assert [param.name_hint for param in mod["main"].params] == ["unused", "x"]


def test_operators_with_several_results() -> None:
    mod = NETWORKS["with_opaque_operators"]()
    graph, _, _ = extract(mod)
    several = [operator for operator in graph.operators if len(operator.outputs) > 1]
    assert [operator.kind for operator in several] == ["opaque"]
    assert axes(several[0], graph) == {}
    same_when_partitioned(mod, {several[0].id: Placement("gpu")})


def test_function_that_takes_a_tuple_reads_only_what_it_uses() -> None:
    """Relay hands the whole result of ``topk`` to a function that reads one half of it."""
    x = relay.var("x", shape=(2, 5))
    result = relay.TupleWrapper(relay.topk(x, 4).astuple(), 2)
    indices = relay.cast(result[1], "float32")
    mod = module(relay.concatenate([relay.nn.relu(indices), indices], axis=1))
    graph, _, _ = extract(mod)
    first, *rest = graph.operators
    assert len(first.outputs) == 2
    assert all(operator.inputs == (first.outputs[1],) for operator in rest)
    same_when_partitioned(mod, {rest[-1].id: Placement("split", "axis1", 5)})


def test_several_results_from_one_function() -> None:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 4))
    same = relay.nn.relu(relay.concatenate([x, y], axis=1))
    mod = module(relay.Tuple([same, relay.exp(same), same]))
    graph, _, _ = extract(mod)
    assert len(graph.outputs) == 3
    same_when_partitioned(mod, {0: Placement("split", "axis1", 4)})


def test_same_tensor_twice() -> None:
    x = relay.var("x", shape=(2, 4))
    same_when_partitioned(module(relay.concatenate([x, x], axis=1)), {0: Placement("split", "axis1", 5)})


@pytest.mark.parametrize("shape", [(relay.Any(), 3), (2, tvm.tir.Var("n", "int32"))])
def test_dynamic_shapes_are_refused(shape: tuple[object, ...]) -> None:
    x = relay.var("x", shape=shape)
    with pytest.raises(UserError, match="not known before it runs"):
        extract(module(relay.nn.relu(x)))


def test_control_flow_is_refused() -> None:
    x, flag = relay.var("x", shape=(2, 3)), relay.var("flag", shape=(), dtype="bool")
    with pytest.raises(UserError, match="no plain graph"):
        extract(module(relay.If(flag, relay.nn.relu(x), relay.exp(x))))


def test_pieces_as_functions() -> None:
    """The two pieces of an operator, built alone, make the whole."""
    graph, weights, _ = extract(NETWORKS["residual_block"]())
    operator = graph.operators[0]
    shape = graph.tensors[operator.inputs[0]].shape
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    extent = axes(operator, graph)["height"].extent
    results = []
    for part in (
        whole(operator, graph),
        piece(operator, graph, "height", 0, 2),
        piece(operator, graph, "height", 2, extent),
    ):
        function = piece_function(part, weights, ["float32"])
        assert tuple(int(n) for n in function.ret_type.shape) == part.output_shape
        feed = part.feeds[0]
        value = x if feed is None else x[:, feed.lo : feed.hi]
        with tvm.transform.PassContext(opt_level=1, config=PASSES):
            executor = relay.create_executor("graph", mod=tvm.IRModule({"main": function}), target="llvm")
            results.append(executor.evaluate()(value).numpy())
    np.testing.assert_allclose(np.concatenate(results[1:], axis=1), results[0], rtol=1e-5, atol=1e-6)


def test_attributes_survive_as_json() -> None:
    x = relay.var("x", shape=(1, 8, 8, 4))
    calls = [
        relay.nn.conv2d(x, relay.var("w", shape=(3, 3, 4, 4)), data_layout="NHWC", kernel_layout="HWIO"),
        relay.transpose(x),
        relay.mean(x, exclude=True, axis=[1]),
        relay.cast(x, "float16"),
        relay.strided_slice(x, [0], [2]),
        relay.image.resize2d(x, (3, 4), layout="NHWC"),
        relay.nn.pad(x, ((0, 0), (1, 2), (0, 0), (0, 0))),
        relay.arange(relay.const(3)),  # attributes that hold expressions: kept as TVM's own JSON
    ]
    for call in calls:
        plain = to_plain(call)
        assert tvm.ir.structural_equal(from_plain(call.op.name, plain), call.attrs)
    assert "tvm_json" in to_plain(calls[-1])


def test_extents_of_64_bits_are_plain_numbers() -> None:
    """Of another form no split rule can change them, and each part of a split would be the whole."""
    x = relay.var("x", shape=(3, 1))
    call = relay.broadcast_to(x, [tvm.tir.IntImm("int64", extent) for extent in (2, 3, 6)])
    assert to_plain(call)["shape"] == [2, 3, 6]
    graph, weights, _ = extract(tvm.IRModule.from_expr(relay.Function([x], call)))
    (operator,) = graph.operators
    part = piece(operator, graph, next(name for name, axis in axes(operator, graph).items() if axis.extent == 6), 0, 4)
    assert sorted(int(n) for n in piece_function(part, weights, ["float32"]).ret_type.shape) == [2, 3, 4]
