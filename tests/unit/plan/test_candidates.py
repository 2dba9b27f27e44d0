from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.unit.plan.networks import Network, convolutions
from tvm_codl.graph.split import Axis, axes
from tvm_codl.plan.candidates import MOST_CUTS, candidates, preferred_cuts
from tvm_codl.plan.plan import Placement
from tvm_codl.records.workload import Workload


class ByFlops:
    """A device whose CPU is three times as fast as its GPU."""

    def predict(self, workloads: Sequence[Workload], processor: str) -> NDArray[np.float64]:
        return np.array([(w.flops + 1) * (1e-6 if processor == "cpu" else 3e-6) for w in workloads])


@given(
    st.integers(2, 600),
    st.integers(1, 8),
    st.sampled_from(["height", "channels", "rows"]),
    st.lists(st.floats(0, 1), max_size=3),
    st.integers(1, 20),
)
def test_cuts_are_few_legal_and_in_order(extent: int, granule: int, name: str, shares: list[float], most: int) -> None:
    axis = Axis(name, 1, extent, granule)
    cuts = preferred_cuts(axis, shares, most)
    assert len(cuts) <= most
    assert list(cuts) == sorted(set(cuts))
    assert all(1 <= at < extent and at % granule == 0 for at in cuts)
    assert cuts or granule >= extent


def test_channels_are_cut_in_whole_vectors_and_rows_anywhere() -> None:
    assert preferred_cuts(Axis("channels", 3, 64, 1), [0.5]) == (16, 32, 48)
    assert preferred_cuts(Axis("channels", 3, 24, 1), [0.5]) == (4, 8, 12, 16, 20)
    assert preferred_cuts(Axis("height", 1, 5, 1), [0.5]) == (1, 2, 3, 4)
    assert 57 in preferred_cuts(Axis("height", 1, 320, 1), [57 / 320])


def test_each_operator_may_be_whole_on_either_processor_or_cut_along_its_axes() -> None:
    graph = convolutions(2, size=40)
    legal = {operator.id: axes(operator, graph) for operator in graph.operators}
    found = candidates(graph, legal, ByFlops())
    for operator in graph.operators:
        options = found[operator.id]
        assert [o.placement for o in options[:2]] == [Placement("cpu"), Placement("gpu")]
        assert {o.placement.axis for o in options[2:]} == {"height", "channels"}
        exact = [o.placement for o in options if not any(o.placement.over)]
        assert all(sum(p.axis == name for p in exact) <= MOST_CUTS for name in ("height", "channels"))
        assert min(options, key=lambda o: o.ms).placement == Placement("split", "height", 30)
    # Alike axes have the same cuts, so that operators can follow one another without sharing.
    first, second = ([o.placement for o in found[id] if not any(o.placement.over)] for id in (0, 1))
    assert first == second


def test_an_opaque_operator_is_placed_whole() -> None:
    network = Network(1, 8, 8, 16)
    network.opaque(0)
    assert [o.placement.on for o in candidates(network.graph(), {}, ByFlops())[0]] == ["cpu", "gpu"]


def test_an_overlap_takes_as_long_as_the_larger_pieces() -> None:
    graph = convolutions(2, size=40)
    legal = {operator.id: axes(operator, graph) for operator in graph.operators}
    found = candidates(graph, legal, ByFlops())
    by_placement = {o.placement: o for o in found[0]}
    assert not any(any(o.placement.over) for o in found[1]), "nobody reads the last one's halo"
    over = by_placement[Placement("split", "height", 30, (1, 1))]
    assert over.cpu_ms == by_placement[Placement("split", "height", 31)].cpu_ms
    assert over.gpu_ms == by_placement[Placement("split", "height", 29)].gpu_ms
