"""How much memory one run of a network goes through."""

from __future__ import annotations

from tvm_codl.graph.dtype import bytes_of
from tvm_codl.graph.opgraph import OpGraph


def touched_bytes(graph: OpGraph) -> int:
    """Bytes that a run reads and writes between two runs of one operator: all weights once, and the tensors at the
    moment when most are alive, since a tensor's memory is used again once it was read for the last time."""
    weights = {const.key: bytes_of(const.shape, const.dtype) for o in graph.operators for const in o.consts}
    size = {tensor.id: bytes_of(tensor.shape, tensor.dtype) for tensor in graph.tensors}
    last = {tensor: step for step, operator in enumerate(graph.operators) for tensor in operator.inputs}
    alive = sum(size[tensor] for tensor in graph.inputs)
    most = alive
    for step, operator in enumerate(graph.operators):
        alive += sum(size[tensor] for tensor in operator.outputs)
        most = max(most, alive)
        read = set(operator.inputs) - set(graph.outputs)
        alive -= sum(size[tensor] for tensor in read if last[tensor] == step)
    return sum(weights.values()) + most
