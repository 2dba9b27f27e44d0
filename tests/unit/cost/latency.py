"""A synthetic device whose latency has the steps of real ones: full vectors, full waves, a start-up time."""

from __future__ import annotations

from math import ceil

from tests.unit.plan.networks import Network
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import axes
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload, workloads

_VECTOR = {"cpu": 16, "gpu": 8}
_UNITS = {"cpu": 1, "gpu": 6}
_RATE = {"cpu": 60e6, "gpu": 30e6}
_START = {"cpu": 0.003, "gpu": 0.03}


def latency(workload: Workload, processor: Processor) -> float:
    """Milliseconds."""
    outputs = workload.batch * workload.out_h * workload.out_w
    groups = ceil(workload.out_c / _VECTOR[processor]) * ceil(outputs / 8)
    waves = ceil(groups / _UNITS[processor]) * _UNITS[processor]
    depth = workload.flops / (outputs * workload.out_c)
    moved = workload.bytes_in + workload.bytes_weights + workload.bytes_out
    return _START[processor] + waves * _VECTOR[processor] * 8 * depth / _RATE[processor] + moved / 9e6


def network() -> OpGraph:
    made = Network(1, 64, 64, 16)
    tensor = 0
    for channels, kernel, stride in (
        *((24, 3, 1), (32, 1, 1), (48, 3, 2), (48, 3, 1), (64, 1, 1)),
        *((96, 3, 2), (96, 3, 1), (96, 1, 1), (128, 3, 2), (128, 3, 1), (160, 1, 1)),
    ):
        tensor = made.conv(tensor, channels, kernel, stride)
    return made.graph()


def pieces(graph: OpGraph, index: int) -> list[Workload]:
    """The first pieces of an operator at every fourth cut along each of its axes."""
    operator = graph.operators[index]
    cuts = [
        (axis.name, 0, at)
        for axis in axes(operator, graph).values()
        for at in range(max(1, axis.extent // 16), axis.extent, max(1, axis.extent // 8))
    ]
    return workloads(operator, graph, cuts)
