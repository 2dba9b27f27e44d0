"""The operators of a file's nodes, from the names that were kept."""

from __future__ import annotations

from onnx import GraphProto, TensorProto, helper

from tvm_codl.frontend.onnx_origin import name_nodes, operators_of_nodes


def graph(*nodes: str) -> GraphProto:
    """Of ``OPERATOR INPUT… > OUTPUT``; names that no node makes are inputs, those with a capital letter weights."""
    made = []
    for text in nodes:
        before, output = text.split(" > ")
        operator, *inputs = before.split()
        made.append(helper.make_node(operator, inputs, [output], name=output))
    weights = sorted({name for node in made for name in node.input if name[0].isupper()})
    return helper.make_graph(
        made, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)], [],
        [helper.make_tensor(name, TensorProto.FLOAT, [1], [1.0]) for name in weights],
    )  # fmt: skip


def test_names_are_those_of_outputs_where_they_do_not_tell_nodes_apart() -> None:
    made = graph("Relu x > a", "Relu a > b", "Relu b > c", "Relu c > d")
    for node, name in zip(made.node, ("", "same", "same", "own"), strict=True):
        node.name = name
    name_nodes(made)
    assert [node.name for node in made.node] == ["a", "b", "c", "own"]


def test_a_node_has_the_operators_of_what_it_was_written_as() -> None:
    made = graph("Gelu x > a", "Softmax a > b.c", "Neg b.c > d")
    assert operators_of_nodes(made, {0: ["a.Gelu0.3"], 1: ["a.Gelu0.5"], 2: ["b.c"], 3: ["stranger"]}) == [
        (0, 1), (2,), (),
    ]  # fmt: skip


def test_a_node_between_two_of_an_operator_is_part_of_it() -> None:
    made = graph("Conv x W > a", "Mul a M > b", "Transpose b > c", "Relu c > d", "Relu d > e")
    assert operators_of_nodes(made, {0: ["a", "d"], 1: ["e"]}) == [(0,), (0,), (0,), (0,), (1,)]


def test_what_computes_shapes_is_between_nothing() -> None:
    made = graph("Conv x W > a", "Shape a > b", "Neg b > c", "Reshape a c > d")
    assert operators_of_nodes(made, {0: ["a", "d"]}) == [(0,), (), (), (0,)]


def test_weights_that_nodes_make_leave_what_reads_them_computed() -> None:
    made = graph("Constant > w", "Conv x w > a", "BatchNormalization a S B M V > b", "Relu b > c")
    assert operators_of_nodes(made, {0: ["a", "c"]}) == [(), (0,), (0,), (0,)]


def test_a_scale_is_merged_with_the_weights_before_it_or_the_activation_behind_it() -> None:
    made = graph(
        "Conv x W > a", "BatchNormalization a S B M V > b", "Add b x > c",
        "BatchNormalization c S B M V > d", "Relu d > e", "MaxPool e > f", "Mul f F > g", "MaxPool g > h",
    )  # fmt: skip
    sources = {0: ["a"], 1: ["c"], 2: ["e"], 3: ["f"], 4: ["h"]}
    assert operators_of_nodes(made, sources) == [(0,), (0,), (1,), (2,), (2,), (3,), (), (4,)]
