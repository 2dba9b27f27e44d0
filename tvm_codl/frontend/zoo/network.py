"""Writing an ONNX graph layer by layer, with seeded weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 13


class Network:
    """An ONNX graph that grows by one node with each call; values are named by the strings that calls return.

    Convolution and dense weights are He-normal: standard deviation sqrt(2 / fan-in), He et al. 2015, equation 10.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, value: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def he_normal(self, shape: Sequence[int], fan_in: int) -> str:
        return self.weight((self.random.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32))

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
            arguments.append(self.weight(self.random.standard_normal(outputs).astype(np.float32) * 0.1))
        return self.add(
            "Conv", *arguments, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups
        )

    def batch_norm(self, x: str, channels: int, scale: float = 1.0) -> str:
        """Batch normalisation with statistics near (0, 1), as after training; ``scale`` is the mean of its gamma."""
        gamma = scale * self.random.uniform(0.8, 1.2, channels)
        values = [gamma, self.random.normal(0, 0.1, channels), self.random.normal(0, 0.1, channels),
                  self.random.uniform(0.8, 1.2, channels)]  # fmt: skip
        return self.add("BatchNormalization", x, *(self.weight(v.astype(np.float32)) for v in values), epsilon=1e-5)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        bias = self.weight(np.zeros(outputs, np.float32))
        return self.add("Gemm", x, self.he_normal((outputs, inputs), inputs), bias, transB=1)

    def finish(self, x: Sequence[int], output: str, y: Sequence[int]) -> onnx.ModelProto:
        """The model: float32 input ``input`` of shape ``x``, and ``output`` of shape ``y``, called ``output``."""
        self.nodes.append(helper.make_node("Identity", [output], ["output"], name="output"))
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, list(x))],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, list(y))],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="tvm_codl")
        model.ir_version = 8
        return model
