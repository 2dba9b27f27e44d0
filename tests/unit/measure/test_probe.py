"""Equal work is measured once."""

from __future__ import annotations

from tests.unit.plan.networks import Network
from tvm_codl.graph.split import axes
from tvm_codl.measure.probe import split_probes, whole_probes
from tvm_codl.plan.plan import Placement


def three_equal_and_one_other() -> Network:
    net = Network(1, 16, 16, 8)
    x = 0
    for _ in range(3):
        x = net.conv(x, 8)
    net.conv(x, 16)
    return net


def test_equal_operators_are_probed_once_on_each_processor() -> None:
    probes = whole_probes(three_equal_and_one_other().graph())
    assert [(p.operator, p.processor) for p in probes] == [(0, "cpu"), (0, "gpu"), (3, "cpu"), (3, "gpu")]
    assert all((p.axis, p.lo, p.hi) == ("", 0, 0) for p in probes)
    assert probes[0].key == probes[1].key != probes[2].key


def test_a_split_has_a_piece_for_each_processor() -> None:
    graph = three_equal_and_one_other().graph()
    legal = {o.id: axes(o, graph) for o in graph.operators}
    wanted = [(id, Placement("split", "height", 5)) for id in (0, 1, 2)]
    probes = split_probes(graph, legal, wanted)
    assert [(p.operator, p.processor, p.axis, p.lo, p.hi) for p in probes] == [
        (0, "cpu", "height", 0, 5),
        (0, "gpu", "height", 5, 16),
    ]


def test_cuts_and_axes_differ_and_whole_placements_have_no_pieces() -> None:
    graph = three_equal_and_one_other().graph()
    legal = {o.id: axes(o, graph) for o in graph.operators}
    wanted = [
        (0, Placement("cpu")),
        (1, Placement("gpu")),
        (0, Placement("split", "height", 5)),
        (0, Placement("split", "height", 6)),
        (0, Placement("split", "channels", 4)),
    ]
    probes = split_probes(graph, legal, wanted)
    keys = {(p.key, p.processor) for p in probes}
    assert len(keys) == len(probes)
    assert {(p.axis, p.lo, p.hi) for p in probes if p.processor == "cpu"} == {
        ("height", 0, 5),
        ("height", 0, 6),
        ("channels", 0, 4),
    }
    assert split_probes(graph, legal, wanted[:2]) == []
