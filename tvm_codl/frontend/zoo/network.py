"""Writing an ONNX graph layer by layer, with seeded weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 13
_DRAWN_AT_ONCE = 1 << 22

Relu = Literal["relu", "relu6", "leaky", "none"]


class Network:
    """An ONNX graph that grows by one node with each call; values are named by the strings that calls return.

    Convolution and dense weights are He-normal: standard deviation sqrt(2 / fan-in), He et al. 2015, equation 10.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def weight(self, value: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def he_normal(self, shape: Sequence[int], fan_in: int) -> str:
        value = np.empty(prod(shape), np.float32)
        # In parts: the doubles that are drawn take twice the memory of the weights.
        for first in range(0, value.size, _DRAWN_AT_ONCE):
            part = value[first : first + _DRAWN_AT_ONCE]
            part[:] = self.random.standard_normal(part.size) * np.sqrt(2.0 / fan_in)
        return self.weight(value.reshape(shape))

    def bias(self, channels: int) -> str:
        return self.weight(self.random.standard_normal(channels).astype(np.float32) * 0.1)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        output = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False
    ) -> str:
        """A convolution whose padding keeps the size at stride 1."""
        fan_in = inputs // groups * kernel * kernel
        arguments = [x, self.he_normal((outputs, inputs // groups, kernel, kernel), fan_in)]
        if bias:
            arguments.append(self.bias(outputs))
        return self.add(
            "Conv", *arguments, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups
        )

    def batch_norm(self, x: str, channels: int, scale: float = 1.0) -> str:
        """Batch normalisation with statistics near (0, 1), as after training; ``scale`` is the mean of its gamma."""
        gamma = scale * self.random.uniform(0.8, 1.2, channels)
        values = [gamma, self.random.normal(0, 0.1, channels), self.random.normal(0, 0.1, channels),
                  self.random.uniform(0.8, 1.2, channels)]  # fmt: skip
        return self.add("BatchNormalization", x, *(self.weight(v.astype(np.float32)) for v in values), epsilon=1e-5)

    def conv_bn(
        self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, scale: float = 1.0,
        relu: Relu = "relu",
    ) -> str:  # fmt: skip
        """Convolution without bias, batch normalisation, and one of the rectifiers, or none."""
        x = self.conv(x, inputs, outputs, kernel, stride, groups)
        return self.rectify(self.batch_norm(x, outputs, scale), relu)

    def rectify(self, x: str, relu: Relu = "relu") -> str:
        if relu == "relu6":
            return self.add("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))
        if relu == "leaky":
            return self.add("LeakyRelu", x, alpha=0.1)
        return self.add("Relu", x) if relu == "relu" else x

    def pool(self, kind: Literal["Max", "Average"], x: str, kernel: int, stride: int, pad: int = 0) -> str:
        return self.add(f"{kind}Pool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def global_pool(self, x: str) -> str:
        """The mean of each channel, as a matrix of one row for each picture."""
        return self.add("Flatten", self.add("GlobalAveragePool", x), axis=1)

    def constant(self, value: np.ndarray | np.generic) -> str:
        """Not a learned weight; equal values are stored once."""
        array = np.asarray(value)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self.constants:
            name = self.constants[key] = f"c{len(self.constants)}"
            self.weights.append(numpy_helper.from_array(array, name))
        return self.constants[key]

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        bias = self.weight(np.zeros(outputs, np.float32))
        return self.add("Gemm", x, self.he_normal((outputs, inputs), inputs), bias, transB=1)

    def finish(
        self, x: Sequence[int], output: str, y: Sequence[int], kind: int = TensorProto.FLOAT
    ) -> onnx.ModelProto:  # fmt: skip
        """The model: one input ``input`` of shape ``x`` and type ``kind``, and ``output`` of shape ``y``."""
        return self.finish_all(x, {"output": (output, y)}, kind)

    def finish_all(
        self, x: Sequence[int], outputs: Mapping[str, tuple[str, Sequence[int]]], kind: int = TensorProto.FLOAT
    ) -> onnx.ModelProto:
        """As :meth:`finish`, with several outputs: by name, the value and its shape."""
        for name, (value, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name], name=name))
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("input", kind, list(x))],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(y)) for n, (_, y) in outputs.items()],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="tvm_codl")
        model.ir_version = 8
        return model
