"""What crosses between two placements, case by case; bytes are float32."""

from __future__ import annotations

import pytest

from tests.unit.plan.networks import Network
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import axes
from tvm_codl.plan.crossing import Crossing, crossing, held, needed
from tvm_codl.plan.plan import Placement

CPU, GPU = Placement("cpu"), Placement("gpu")
ROW = 16 * 32 * 4
CHANNEL = 16 * 16 * 4
ALL = 16 * ROW


def rows(at: int, *over: int) -> Placement:
    return Placement("split", "height", at, over if over else (0, 0))  # type: ignore[arg-type]


def channels(at: int) -> Placement:
    return Placement("split", "channels", at)


def pair(kernel: int) -> OpGraph:
    """Two convolutions, 1x16x16x32 between them; the second one has this kernel."""
    network = Network(1, 16, 16, 32)
    network.conv(network.conv(0, 32), 32, kernel)
    return network.graph()


def between(graph: OpGraph, producer: Placement, consumer: Placement) -> Crossing:
    first, second = graph.operators
    tensor = graph.tensors[first.outputs[0]]
    wants = needed(second, graph, [consumer], axes(second, graph))[0]
    return crossing(tensor, held(tensor, [producer], axes(first, graph)), wants)


@pytest.mark.parametrize(
    ("kernel", "producer", "consumer", "to_cpu", "to_gpu", "joined"),
    [
        (3, CPU, CPU, 0, 0, 0),
        (3, GPU, GPU, 0, 0, 0),
        (3, CPU, GPU, 0, ALL, 0),
        (3, GPU, CPU, ALL, 0, 0),
        (3, rows(6), CPU, 10 * ROW, 0, 0),
        (3, rows(6), GPU, 0, 6 * ROW, 0),
        (3, CPU, rows(6), 0, 11 * ROW, 0),
        (3, GPU, rows(6), 7 * ROW, 0, 0),
        # The same cut: the halo of one row each way, or nothing where there is no halo.
        (3, rows(6), rows(6), ROW, ROW, 0),
        (1, rows(6), rows(6), 0, 0, 0),
        (1, rows(6), rows(8), 2 * ROW, 0, 0),
        (1, rows(6), rows(5), 0, ROW, 0),
        # The halo is recomputed on both sides, or on one; a part of it is not enough.
        (3, rows(6, 1, 1), rows(6), 0, 0, 0),
        (3, rows(6, 2, 3), rows(6), 0, 0, 0),
        (3, rows(6, 1, 0), rows(6), 0, ROW, 10 * ROW),
        (3, rows(6, 1, 1), rows(6, 1, 1), ROW, ROW, 11 * ROW),
        (3, rows(6), rows(6, 1, 2), 2 * ROW, 3 * ROW, 0),
        # Both hold it: nothing crosses, and nothing is joined.
        (1, rows(6, 2, 2), rows(8), 0, 0, 0),
        (3, rows(6, 1, 1), GPU, 0, 5 * ROW, 11 * ROW),
        # All input channels are needed on both sides: each joins both pieces.
        (1, channels(8), channels(8), 24 * CHANNEL, 8 * CHANNEL, ALL),
        (1, CPU, channels(8), 0, ALL, 0),
        # Pieces along another axis: a quarter is already where it is needed.
        (1, channels(16), rows(8), ALL // 4, ALL // 4, ALL // 2),
    ],
)
def test_bytes(kernel: int, producer: Placement, consumer: Placement, to_cpu: int, to_gpu: int, joined: int) -> None:
    crosses = between(pair(kernel), producer, consumer)
    assert (crosses.to_cpu.item(), crosses.to_gpu.item(), crosses.joined.item()) == (to_cpu, to_gpu, joined)


def test_a_piece_of_channels_stays_where_its_reader_wants_it() -> None:
    network = Network(1, 16, 16, 32)
    network.add(network.conv(0, 32), 0)
    same = between(network.graph(), channels(8), channels(8))
    assert not any((same.to_cpu.item(), same.to_gpu.item(), same.joined.item()))
    moved = between(network.graph(), channels(8), channels(12))
    assert moved.to_cpu.item() == 4 * CHANNEL and moved.joined.item() == 20 * CHANNEL


@pytest.mark.parametrize(
    ("producer", "consumer", "answer"),
    [
        (CPU, CPU, (False, False)),
        (CPU, GPU, (False, True)),
        (rows(6), CPU, (True, False)),
        (rows(6), rows(6), (True, True)),
        (rows(6), rows(7), (True, False)),
        (rows(6, 1, 1), rows(6), (False, False)),
        (rows(6, 0, 1), rows(6), (True, False)),
        (channels(8), channels(8), (True, True)),
    ],
)
def test_who_needs_the_other(producer: Placement, consumer: Placement, answer: tuple[bool, bool]) -> None:
    crosses = between(pair(3), producer, consumer)
    assert (crosses.to_cpu.item() > 0, crosses.to_gpu.item() > 0) == answer
