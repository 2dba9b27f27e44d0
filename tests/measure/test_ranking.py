"""The coarse filter without a phone: a synthetic device's latencies stand for its records."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from tests.unit.cost.latency import latency
from tests.unit.plan.networks import Network
from tvm_codl.cost.model import CostModel
from tvm_codl.cost.samples import Sample
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import UsageError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import Axis, axes
from tvm_codl.measure.ranking import choose_seeds, predict, rank_models
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload
from tvm_codl.report.ranking import Predicted, agreement, in_order

PROCESSORS: tuple[Processor, Processor] = ("cpu", "gpu")


def variant(width: float, layers: int = 5) -> OpGraph:
    made = Network(1, 56, 56, 16)
    tensor = 0
    for layer in range(layers):
        channels = 8 * max(1, round(width * (4, 6, 8, 12, 16, 20)[layer]))
        tensor = made.conv(tensor, channels, (3, 1)[layer % 2], 2 if layer == 2 else 1)
    return made.graph()


def axes_of(graph: OpGraph) -> dict[int, dict[str, Axis]]:
    return {o.id: axes(o, graph) for o in graph.operators}


def wholes(*graphs: OpGraph) -> list[Workload]:
    return list({w.key: w for g in graphs for o in g.operators for w in [Workload.of(o, g)]}.values())


def known_device(*graphs: OpGraph) -> CostModel:
    return CostModel.fit([Sample(w, p, latency(w, p)) for w in wholes(*graphs) for p in PROCESSORS])


def predicted(name: str, graph: OpGraph, device: CostModel) -> Predicted:
    return predict(name, graph, axes_of(graph), device, TransferCost(0.01, 0.01, 0.0, 0.1))


def test_measured_operators_add_up_to_each_processors_time() -> None:
    graph = variant(1.0)
    found = predicted("a", graph, known_device(graph))
    for processor, ms in (("cpu", found.cpu_ms), ("gpu", found.gpu_ms)):
        alone = sum(latency(Workload.of(o, graph), processor) for o in graph.operators)  # type: ignore[arg-type]
        assert alone <= ms <= alone + 0.1
    assert found.coexec_ms <= min(found.cpu_ms, found.gpu_ms)
    assert found.known == 1.0
    assert found.operators == len(graph.operators)
    assert 0 < found.sigma_ms < found.coexec_ms


def test_variants_that_were_never_measured_come_in_the_devices_order() -> None:
    device = known_device(*(variant(width) for width in (0.3, 0.55, 0.9, 1.4, 1.9)))
    graphs = {f"{width}": variant(width) for width in (0.4, 0.65, 0.8, 1.1, 1.3, 1.6)}
    order = [p.model for p in in_order([predicted(n, g, device) for n, g in graphs.items()])]
    true = {
        n: sum(min(latency(Workload.of(o, g), p) for p in PROCESSORS) for o in g.operators) for n, g in graphs.items()
    }
    assert order == sorted(true, key=lambda name: true[name])


def test_what_is_not_measured_is_less_sure_and_less_known() -> None:
    graph, other = variant(1.0), variant(1.7)
    measured, guessed = predicted("a", graph, known_device(graph)), predicted("a", graph, known_device(other))
    assert guessed.known < 0.5 < measured.known
    assert guessed.sigma_ms / guessed.coexec_ms > measured.sigma_ms / measured.coexec_ms


def test_a_repeated_operator_is_off_in_one_direction() -> None:
    """Four equal operators are four times as unsure as one, not twice."""
    once, often = Network(1, 28, 28, 32), Network(1, 28, 28, 32)
    once.conv(0, 32)
    tensor = 0
    for _ in range(4):
        tensor = often.conv(tensor, 32)
    device = known_device(variant(1.0))
    one, four = predicted("one", once.graph(), device), predicted("four", often.graph(), device)
    assert four.sigma_ms == pytest.approx(4 * one.sigma_ms, rel=0.25)


@dataclass(frozen=True)
class OnlyGraph:
    graph: OpGraph


def test_seeds_span_the_work_of_all_networks_on_both_processors() -> None:
    networks = {f"{width}": OnlyGraph(variant(width)) for width in (0.5, 1.0, 1.5)}
    found = choose_seeds(networks, 9)  # type: ignore[arg-type]
    assert found.keys() == networks.keys()
    keys = [(p.key, p.processor) for probes in found.values() for p in probes]
    assert len(keys) == len(set(keys)) == 18
    for name, probes in found.items():
        graph = networks[name].graph
        flops = {graph.operators[p.operator].flops for p in probes}
        assert {p.processor for p in probes} == set(PROCESSORS)
        assert min(flops) <= min(o.flops for o in graph.operators[1:]) and len(flops) == 3


def test_nothing_to_rank_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="nothing to rank"):
        rank_models({}, None)


def test_orders_that_agree_and_orders_that_do_not() -> None:
    ours = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    same = agreement(ours, {"c": 31.0, "a": 11.0, "b": 22.0})
    assert (same.n, same.kendall, same.spearman) == (3, pytest.approx(1), pytest.approx(1))
    assert same.same_best and same.best_measured == "a" and same.regret == 0
    turned = agreement(ours, {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0})
    assert turned.kendall == pytest.approx(-1) and turned.spearman == pytest.approx(-1)
    assert (turned.best_predicted, turned.best_measured) == ("a", "d") and turned.regret == pytest.approx(3)
    # One pair of six is the wrong way round: (5 - 1) / 6.
    assert agreement(ours, {"a": 1.0, "b": 3.0, "c": 2.0, "d": 9.0}).kendall == pytest.approx(4 / 6)


def test_one_model_has_no_order() -> None:
    one = agreement({"a": 1.0}, {"a": 2.0})
    assert (one.n, one.kendall, one.spearman, one.same_best) == (1, None, None, True)
    equal = agreement({"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 3.0})
    assert equal.kendall is None and not math.isnan(equal.regret)
