"""Writes ONNX's operators on quantised tensors as what they mean: dequantise, the operator on floats, quantise.

So the passes of ``relay/`` meet one form, whichever of its two onnxruntime's quantisation wrote (``QuantFormat.QDQ`` or
``QOperator``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_codl.frontend.onnx_types import Types, attributes_of, element_type, shape_of

_MICROSOFT = "com.microsoft"
#: Of zero points that are not written; uint8 for all others.
_TYPES: dict[int, type[np.generic]] = {onnx.TensorProto.INT8: np.int8, onnx.TensorProto.INT32: np.int32}


@dataclass
class _Nodes:
    """The nodes that stand for ``call``.  ``constants`` are the small ones of the model."""

    call: onnx.NodeProto
    types: Types
    constants: Mapping[str, onnx.TensorProto]
    made: list[onnx.NodeProto] = field(default_factory=list)

    def add(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """The name of its result."""
        name = output or f"{self.call.output[0]}.{op}{len(self.made)}"
        self.made.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value: np.ndarray) -> str:
        return self.add("Constant", [], value=numpy_helper.from_array(value))

    def input(self, place: int) -> str:
        """Empty where the call has none."""
        return self.call.input[place] if place < len(self.call.input) else ""

    def dequantised(self, place: int, axis: int = 0) -> str:
        """The number that the inputs ``place`` (values), ``place + 1`` (scale) and ``place + 2`` (zero point) stand for;
        with a scale for each index of ``axis``, where there are several."""
        tensor, scale, zero = (self.input(place + i) for i in range(3))
        shape = shape_of(scale, self.types) or ()
        if not zero:
            zero = self.constant(np.zeros(shape, _TYPES.get(element_type(tensor, self.types), np.uint8)))
        along: dict[str, Any] = {"axis": axis} if prod(shape) > 1 else {}
        return self.add("DequantizeLinear", [tensor, scale, zero], **along)

    def bias(self, place: int, left: int, right: int, factor: float = 1.0) -> str:
        """The int32 bias at ``place``, in units of the product of the scales at ``left`` and ``right``."""
        x, w = (numpy_helper.to_array(self.constants[self.call.input[i]]).reshape(-1) for i in (left, right))
        scale = (x * w * np.float32(factor)).astype(np.float32)
        shape = shape_of(self.input(place), self.types) or (1,)
        if scale.size == 1:
            return self.add(
                "DequantizeLinear",
                [self.input(place), self.constant(scale.reshape(())), self.constant(np.array(0, np.int32))],
            )
        scales, zeros = self.constant(scale), self.constant(np.zeros(scale.size, np.int32))
        return self.add("DequantizeLinear", [self.input(place), scales, zeros], axis=len(shape) - 1)

    def quantise(self, value: str, scale: int) -> list[onnx.NodeProto]:
        """All nodes; the last makes the call's output from ``value``, the scale there and the zero point behind it."""
        zero = self.input(scale + 1) or self.constant(np.array(0, np.uint8))
        self.add("QuantizeLinear", [value, self.input(scale), zero], self.call.output[0])
        return self.made

    def attributes(self, *left_out: str) -> dict[str, Any]:
        return {name: value for name, value in attributes_of(self.call).items() if name not in left_out}


def expand_quantised(proto: onnx.ModelProto, types: Types) -> bool:
    """Changes ``proto``; ``types`` has those of its values.  Whether anything was replaced: new values have no types yet."""
    constants = {t.name: t for t in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant" and "value" in attributes_of(node):
            constants[node.output[0]] = attributes_of(node)["value"]
    nodes: list[onnx.NodeProto] = []
    replaced = False
    for node in proto.graph.node:
        rewrite = QUANTISED.get(node.op_type)
        if rewrite is None or not _has_constant_scales(node, constants):
            nodes.append(node)
        else:
            nodes.extend(rewrite(_Nodes(node, types, constants)))
            replaced = True
    if replaced:
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)
    return replaced


def _has_constant_scales(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    return node.op_type not in ("QLinearConv", "QGemm") or all(node.input[i] in constants for i in (1, 4))


def _convolution(nodes: _Nodes) -> list[onnx.NodeProto]:
    inputs = [nodes.dequantised(0), nodes.dequantised(3)]
    if nodes.input(8):
        inputs.append(nodes.bias(8, 1, 4))
    return nodes.quantise(nodes.add("Conv", inputs, **nodes.attributes()), 6)


def _gemm(nodes: _Nodes) -> list[onnx.NodeProto]:
    attributes = nodes.attributes()
    columns = 0 if attributes.get("transB") else 1
    inputs = [nodes.dequantised(0), nodes.dequantised(3, columns)]
    if nodes.input(6):
        inputs.append(nodes.bias(6, 1, 4, attributes.get("alpha", 1.0)))
    if nodes.input(7):
        return nodes.quantise(nodes.add("Gemm", inputs, **attributes), 7)
    nodes.add("Gemm", inputs, nodes.call.output[0], **attributes)
    return nodes.made


def _product(nodes: _Nodes) -> list[onnx.NodeProto]:
    rank = len(shape_of(nodes.input(3), nodes.types) or (0, 0))
    return nodes.quantise(nodes.add("MatMul", [nodes.dequantised(0), nodes.dequantised(3, rank - 1)]), 6)


def _binary(op: str) -> Callable[[_Nodes], list[onnx.NodeProto]]:
    return lambda nodes: nodes.quantise(nodes.add(op, [nodes.dequantised(0), nodes.dequantised(3)]), 6)


def _unary(op: str) -> Callable[[_Nodes], list[onnx.NodeProto]]:
    return lambda nodes: nodes.quantise(nodes.add(op, [nodes.dequantised(0)], **nodes.attributes("opset")), 3)


def _pool(op: str) -> Callable[[_Nodes], list[onnx.NodeProto]]:
    def rewrite(nodes: _Nodes) -> list[onnx.NodeProto]:
        if attributes_of(nodes.call).get("channels_last"):
            return [nodes.call]
        return nodes.quantise(nodes.add(op, [nodes.dequantised(0)], **nodes.attributes("channels_last")), 3)

    return rewrite


def _concatenation(nodes: _Nodes) -> list[onnx.NodeProto]:
    parts = [nodes.dequantised(place) for place in range(2, len(nodes.call.input), 3)]
    return nodes.quantise(nodes.add("Concat", parts, **nodes.attributes()), 0)


def _where(nodes: _Nodes) -> list[onnx.NodeProto]:
    return nodes.quantise(nodes.add("Where", [nodes.input(0), nodes.dequantised(1), nodes.dequantised(4)]), 7)


def _plain(nodes: _Nodes) -> list[onnx.NodeProto]:
    """The zero point is an input of its own, and the operator ONNX's where it is onnxruntime's."""
    call = nodes.call
    if call.domain != _MICROSOFT and nodes.input(2):
        return [call]
    tensor = element_type(nodes.input(0), nodes.types) if call.op_type == "DequantizeLinear" else 0
    shape = shape_of(nodes.input(1), nodes.types) or ()
    zero = nodes.input(2) or nodes.constant(np.zeros(shape, _TYPES.get(tensor, np.uint8)))
    nodes.add(call.op_type, [call.input[0], call.input[1], zero], call.output[0], **nodes.attributes())
    return nodes.made


QUANTISED: dict[str, Callable[[_Nodes], list[onnx.NodeProto]]] = {
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _pool("AveragePool"),
    "QLinearConcat": _concatenation,
    "QLinearConv": _convolution,
    "QLinearGlobalAveragePool": _pool("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearMatMul": _product,
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _unary("Softmax"),
    "QLinearWhere": _where,
    "DequantizeLinear": _plain,
    "QuantizeLinear": _plain,
}
