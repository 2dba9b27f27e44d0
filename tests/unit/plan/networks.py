"""Small networks as OpGraphs, without Relay."""

from __future__ import annotations

from math import prod

from tvm_codl.graph.opgraph import Const, Node, Operator, OpGraph, Ref, Shape, Tensor


class Network:
    """Add operators one after the other; each method returns the id of the tensor that it makes."""

    def __init__(self, *shape: int) -> None:
        self.tensors = [Tensor(0, "x", shape, "float32")]
        self.operators: list[Operator] = []

    def graph(self, *outputs: int) -> OpGraph:
        return OpGraph(tuple(self.tensors), tuple(self.operators), (0,), outputs or (len(self.tensors) - 1,))

    def conv(self, source: int, channels: int, kernel: int = 3, stride: int = 1, name: str = "") -> int:
        """A convolution that pads to keep its size (divided by the stride), and a rectifier."""
        batch, height, width, inputs = self.tensors[source].shape
        pad = kernel // 2
        size = [(extent + 2 * pad - kernel) // stride + 1 for extent in (height, width)]
        result = (batch, *size, channels)
        weight = (kernel, kernel, inputs, channels)
        attrs = {
            "data_layout": "NHWC",
            "kernel_layout": "HWIO",
            "out_layout": "",
            "kernel_size": [kernel, kernel],
            "channels": channels,
            "groups": 1,
            "strides": [stride, stride],
            "dilation": [1, 1],
            "padding": [pad, pad, pad, pad],
        }
        body = (
            Node("nn.conv2d", attrs, (Ref("input", 0), Ref("const", 0)), (result,), "float32"),
            Node("nn.relu", {}, (Ref("node", 0),), (result,), "float32"),
        )
        flops = prod(result) * (2 * kernel * kernel * inputs + 1)
        return self._add("conv2d", (source,), body, (weight,), result, flops, name)

    def add(self, left: int, right: int) -> int:
        result = self.tensors[left].shape
        body = (Node("add", {}, (Ref("input", 0), Ref("input", 1)), (result,), "float32"),)
        return self._add("add", (left, right), body, (), result, prod(result))

    def opaque(self, source: int) -> int:
        result = self.tensors[source].shape
        body = (Node("vision.unknown", {}, (Ref("input", 0),), (result,), "float32"),)
        return self._add("opaque", (source,), body, (), result, 0)

    def _add(
        self,
        kind: str,
        inputs: tuple[int, ...],
        body: tuple[Node, ...],
        weights: tuple[Shape, ...],
        result: Shape,
        flops: int,
        name: str = "",
    ) -> int:
        id = len(self.operators)
        out = len(self.tensors)
        name = name or f"{kind}_{id}"
        self.tensors.append(Tensor(out, f"{name}:0", result, "float32"))
        consts = tuple(Const(f"{name}.{i}", shape, "float32") for i, shape in enumerate(weights))
        self.operators.append(Operator(id, name, kind, inputs, (out,), body, consts, flops))
        return out


def convolutions(count: int = 2, size: int = 16, channels: int = 32) -> OpGraph:
    network = Network(1, size, size, channels)
    tensor = 0
    for _ in range(count):
        tensor = network.conv(tensor, channels)
    return network.graph()
