"""The convolutions and dense layers of networks, each once, as what any library for GPUs can be asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tvm
from gpu_rows import Convolution

from tvm_codl.build.pool import build_all
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model
from tvm_codl.graph.names import anchor_of
from tvm_codl.graph.opgraph import Node, Operator, OpGraph
from tvm_codl.measure.probe import Probe
from tvm_codl.measure.wanted_kernels import TUNED, kernels
from tvm_codl.records.workload import Workload
from tvm_codl.relay.pipeline import prepare


class Wanted(msgspec.Struct, frozen=True):
    """A convolution, how often each network has it, and our kernel's AutoTVM workload for it."""

    convolution: Convolution
    count: dict[str, int]
    workload: tuple[Any, ...]


def find(models: Sequence[str], target: tvm.target.Target, workers: int = 0) -> list[Wanted]:
    """The distinct convolutions of zoo networks, those with the most work first.  Networks are read side by side.

    Raises :class:`UserError` for a network that cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="tvm_codl-convolutions-") as folder:
        places = [Path(folder) / f"{number}.json" for number in range(len(models))]

        def write(index: int) -> Path:
            places[index].write_bytes(msgspec.json.encode(_of_zoo(models[index], target)))
            return places[index]

        for index, outcome in build_all(len(models), write, workers):
            if outcome.path is None:
                raise UserError(f"{models[index]} cannot be read", outcome.error, "give names of the zoo: resnet18 …")
        each = [msgspec.json.decode(place.read_bytes(), type=list[Wanted]) for place in places]
    return _together(each)


def _together(networks: Iterable[Sequence[Wanted]]) -> list[Wanted]:
    found: dict[Convolution, Wanted] = {}
    for network in networks:
        for wanted in network:
            before = found.get(wanted.convolution, msgspec.structs.replace(wanted, count={}))
            found[wanted.convolution] = msgspec.structs.replace(before, count={**before.count, **wanted.count})
    return sorted(found.values(), key=lambda wanted: -wanted.convolution.flops)


def _of_zoo(name: str, target: tvm.target.Target) -> list[Wanted]:
    return wanted_of(name, prepare(load_model(f"zoo:{name}")).graph, target)


def wanted_of(name: str, graph: OpGraph, target: tvm.target.Target) -> list[Wanted]:
    """The distinct convolutions of the network ``name`` for which we have a kernel."""
    count: dict[Convolution, int] = {}
    first: dict[Convolution, int] = {}
    for operator in graph.operators:
        convolution = convolution_of(operator, graph)
        if convolution is not None:
            count[convolution] = count.get(convolution, 0) + 1
            first.setdefault(convolution, operator.id)
    wanted = []
    for convolution, operator in first.items():
        probe = Probe(operator, "gpu", Workload.of(graph.operators[operator], graph).key)
        asked = [kernel.workload for kernel in kernels(graph, [(probe, 0.0)], {"gpu": target})]
        if len(asked) == 1:  # grouped convolutions, for which we have no kernel, are left out
            wanted.append(Wanted(convolution, {name: count[convolution]}, asked[0]))
    return wanted


def convolution_of(operator: Operator, graph: OpGraph) -> Convolution | None:
    """The anchor of an operator; None where it is another kind of operator."""
    node = operator.body[anchor_of(operator.body)]
    if node.op not in TUNED or node.op == "nn.batch_matmul":
        return None
    data = _shape(node, 0, operator, graph)
    if node.op == "nn.dense":
        one = (1, 1)
        return Convolution(data[0], 1, 1, data[1], node.results[0][-1], one, one, (0, 0, 0, 0), one, 1, dense=True)
    attrs: Mapping[str, Any] = node.attrs
    n, h, w, c = (data[attrs["data_layout"].index(letter)] for letter in "NHWC")
    kernel, stride, pad, dilation = (tuple(attrs[k]) for k in ("kernel_size", "strides", "padding", "dilation"))
    return Convolution(n, h, w, c, attrs["channels"], kernel, stride, pad, dilation, attrs["groups"])


def _shape(node: Node, argument: int, operator: Operator, graph: OpGraph) -> tuple[int, ...]:
    """Of an argument of a node."""
    ref = node.args[argument]
    if ref.source == "input":
        return graph.tensors[operator.inputs[ref.index]].shape
    if ref.source == "node":
        return operator.body[ref.index].results[0]
    return operator.consts[ref.index].shape
