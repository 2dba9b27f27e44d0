from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.plan.networks import Network, convolutions
from tvm_codl.errors import UserError
from tvm_codl.graph.split import NoSplit
from tvm_codl.records.workload import Workload, workloads


def test_the_facts_of_a_convolution() -> None:
    network = Network(1, 32, 24, 16)
    network.conv(0, 64, 3, stride=2)
    graph = network.graph()
    whole = Workload.of(graph.operators[0], graph)
    assert (whole.kind, whole.anchor, whole.dtype) == ("conv2d", "nn.conv2d", "float32")
    assert (whole.batch, whole.out_h, whole.out_w, whole.out_c) == (1, 16, 12, 64)
    assert (whole.in_h, whole.in_w, whole.in_c) == (32, 24, 16)
    assert (whole.kernel_h, whole.kernel_w, whole.stride, whole.dilation, whole.groups) == (3, 3, 2, 1, 1)
    assert whole.bytes_in == 32 * 24 * 16 * 4
    assert whole.bytes_weights == 3 * 3 * 16 * 64 * 4
    assert whole.bytes_out == 16 * 12 * 64 * 4
    assert (whole.body, whole.cut, whole.whole) == (2, None, None)


def test_pieces_have_the_facts_of_what_they_compute() -> None:
    graph = convolutions(1)
    operator = graph.operators[0]
    whole, rows, channels = workloads(operator, graph, [("", 0, 0), ("height", 0, 4), ("channels", 8, 32)])
    assert rows.whole == channels.whole == whole
    assert (rows.out_h, rows.in_h, rows.bytes_weights) == (4, 5, whole.bytes_weights)
    assert rows.flops * 4 == whole.flops
    assert (channels.out_c, channels.in_c, channels.out_h) == (24, 32, 16)
    assert channels.bytes_weights * 4 == whole.bytes_weights * 3
    assert channels.bytes_in == whole.bytes_in
    assert (rows.cut.lo, rows.cut.hi, rows.cut.extent) == (0, 4, 16) if rows.cut else False


def test_equal_structure_has_an_equal_key_whatever_the_names_and_ids() -> None:
    first, second = Network(1, 16, 16, 32), Network(1, 16, 16, 32)
    first.conv(0, 32, name="here")
    second.conv(second.conv(0, 32, name="other"), 32, name="there")
    one, two = first.graph(), second.graph()
    pieces = [("", 0, 0), ("height", 4, 16), ("channels", 0, 8)]
    keys = [w.key for w in workloads(one.operators[0], one, pieces)]
    assert keys == [w.key for w in workloads(two.operators[1], two, pieces)]
    assert len(set(keys)) == 3
    assert not any(name in key for key in keys for name in ("here", "there", "other"))


def test_the_order_of_attributes_does_not_matter_and_their_values_do() -> None:
    graph = convolutions(1)
    operator = graph.operators[0]
    conv, relu = operator.body
    shuffled = replace(conv, attrs=dict(reversed(conv.attrs.items())))
    dilated = replace(conv, attrs={**conv.attrs, "dilation": [2, 2]})
    key = Workload.of(operator, graph).key
    assert Workload.of(replace(operator, body=(shuffled, relu)), graph).key == key
    assert Workload.of(replace(operator, body=(dilated, relu)), graph).key != key


def test_a_workload_comes_back_from_its_key() -> None:
    network = Network(1, 16, 16, 32)
    network.add(network.conv(0, 32), 0)
    network.opaque(2)
    graph = network.graph()
    for operator in graph.operators:
        pieces = [("", 0, 0)] if operator.kind == "opaque" else [("", 0, 0), ("height", 3, 16), ("channels", 0, 8)]
        for made in workloads(operator, graph, pieces):
            assert Workload.from_key(made.key) == made


@pytest.mark.parametrize("key", ["", "conv2d", "{}", '{"kind": 3}', "[1, 2]"])
def test_other_text_is_no_key(key: str) -> None:
    with pytest.raises(UserError, match="no workload"):
        Workload.from_key(key)


def test_an_axis_that_is_not_there_is_refused() -> None:
    graph = convolutions(1)
    with pytest.raises(NoSplit):
        Workload.of(graph.operators[0], graph, "depth", 0, 1)
