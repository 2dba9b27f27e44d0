"""Equal work is measured once."""

from __future__ import annotations

from tests.unit.plan.networks import Network, convolutions
from tvm_codl.graph.split import axes
from tvm_codl.measure.probe import Probe, failed_probes, split_probes, whole_probes
from tvm_codl.plan.plan import Placement
from tvm_codl.records.record import Piece, Record


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


def recorded(probe: Probe, times_ms: tuple[float, ...]) -> Record:
    piece = Piece("conv2d", probe.axis, probe.lo, probe.hi)
    return Record(probe.key, piece, probe.processor, "phone", "b", times_ms, 0.0)


def test_what_failed_of_a_network_is_found_by_its_records() -> None:
    graph = three_equal_and_one_other().graph()
    legal = {o.id: axes(o, graph) for o in graph.operators}
    whole = whole_probes(graph)
    pieces = split_probes(graph, legal, [(3, Placement("split", "height", 5))])
    foreign = whole_probes(convolutions(1, size=40))
    records = [recorded(probe, ()) for probe in (whole[1], *pieces, *foreign, whole[1])]
    records += [recorded(whole[0], (1.0,)), recorded(whole[2], (1.0,))]
    changed = pieces[0].key.replace('"hi":5', '"hi":500')
    assert changed != pieces[0].key
    records.append(Record(changed, Piece("conv2d", "height", 0, 500), "cpu", "phone", "b", (), 0.0))
    records.append(Record("no key", Piece("conv2d"), "cpu", "phone", "b", (), 0.0))
    assert failed_probes(graph, records) == [whole[1], *pieces]
