"""TFLite networks of floats as full integer: what a converter does after training, plainly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tvm_codl.frontend.interpreter import tflite_tensors
from tvm_codl.frontend.tflite_custom import without_custom
from tvm_codl.frontend.tflite_file import constant, dtype_of, operator_name, read_tflite, write_tflite
from tvm_codl.frontend.tflite_import import store_float32

#: Operators whose inputs and outputs TFLite wants in one scale.
_SAME_SCALE = ("CONCATENATION", "MAX_POOL_2D", "PAD", "RESHAPE", "RESIZE_BILINEAR")
_FIXED = {"LOGISTIC": (1 / 256, -128), "SOFTMAX": (1 / 256, -128), "TANH": (1 / 128, 0)}
_WEIGHTED = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 0}


def full_integer(path: Path, target: Path, inputs: Mapping[str, np.ndarray], integer_ends: bool = True) -> Path:
    """The network of floats at ``path`` with int8 tensors whose ranges are those on ``inputs``, and scales for each channel of
    the weights.  Without ``integer_ends``, QUANTIZE is behind its inputs and DEQUANTIZE before its outputs."""
    model = without_custom(read_tflite(path))
    store_float32(model)
    graph = model.subgraphs[0]
    numbers = [i for i, t in enumerate(graph.tensors) if dtype_of(t) == "float32" and constant(model, t) is None]
    values = dict(zip(numbers, tflite_tensors(path, inputs, numbers), strict=True))
    group = {i: i for i in numbers}
    for operator in graph.operators:
        if operator_name(model, operator) in _SAME_SCALE:
            merged = {group[i] for i in (*operator.inputs, *operator.outputs) if i in group}
            group = {i: min(merged) if found in merged else found for i, found in group.items()}
    for i in numbers:
        held = [values[j] for j in numbers if group[j] == group[i]]
        low, high = min(0.0, *(v.min() for v in held)), max(0.0, *(v.max() for v in held))
        scale = (high - low) / 255 or 1.0
        _hold(graph.tensors[i], "int8", [scale], [round(-128 - low / scale)])
    for operator in graph.operators:
        name = operator_name(model, operator)
        if name in _FIXED:
            scale, zero = _FIXED[name]
            _hold(graph.tensors[operator.outputs[0]], "int8", [scale], [zero])
        if name in _WEIGHTED:
            order = (2, 1, 3) if name == "TRANSPOSE_CONV" else (0, 1, 2)
            x, weights, bias = (graph.tensors[operator.inputs[i]] for i in order)
            _quantise_weights(model, weights, _WEIGHTED[name], name != "FULLY_CONNECTED")
            scales = x.quantization.scale[0] * np.array(weights.quantization.scale)
            size = constant(model, bias).size
            _store(model, bias, np.round(constant(model, bias) / scales).astype(np.int32))
            _hold(bias, "int32", np.broadcast_to(scales, size), [0] * size)
        for other in (graph.tensors[i] for i in operator.inputs if i >= 0):
            if dtype_of(other) == "float32":
                _quantise_weights(model, other, 0, per_channel=False)
    if not integer_ends:
        _float_ends(model)
    target.write_bytes(write_tflite(model))
    return target


def _hold(tensor: schema.TensorT, dtype: str, scale: Sequence[float], zero: Sequence[int], axis: int = 0) -> None:
    tensor.type = getattr(schema.TensorType, dtype.upper())
    tensor.quantization = schema.QuantizationParametersT(
        scale=[float(s) for s in scale], zeroPoint=[int(z) for z in zero], quantizedDimension=axis
    )


def _store(model: schema.ModelT, tensor: schema.TensorT, value: np.ndarray) -> None:
    tensor.buffer = len(model.buffers)
    model.buffers.append(schema.BufferT(np.frombuffer(value.tobytes(), np.uint8)))


def _quantise_weights(model: schema.ModelT, tensor: schema.TensorT, axis: int, per_channel: bool) -> None:
    value = constant(model, tensor)
    others = tuple(i for i in range(value.ndim) if i != axis) if per_channel else None
    scale = np.maximum(np.abs(value).max(axis=others, keepdims=True), 1e-6) / 127
    _store(model, tensor, np.round(value / scale).astype(np.int8))
    _hold(tensor, "int8", scale.reshape(-1), [0] * scale.size, axis if per_channel else 0)


def _float_ends(model: schema.ModelT) -> None:
    graph = model.subgraphs[0]
    graph.inputs, graph.outputs = list(graph.inputs), list(graph.outputs)
    for ends, name in ((graph.inputs, "QUANTIZE"), (graph.outputs, "DEQUANTIZE")):
        code = getattr(schema.BuiltinOperator, name)
        for place, index in enumerate(ends):
            tensor = graph.tensors[index]
            end = schema.TensorT(shape=tensor.shape, type=schema.TensorType.FLOAT32, name=tensor.name)
            tensor.name = tensor.name + b".int8"
            graph.tensors.append(end)
            ends[place] = len(graph.tensors) - 1
            inner, outer = [index], [ends[place]]
            made = schema.OperatorT(
                len(model.operatorCodes), *((outer, inner) if name == "QUANTIZE" else (inner, outer))
            )
            model.operatorCodes.append(schema.OperatorCodeT(code, version=1, builtinCode=code))
            graph.operators = [made, *graph.operators] if name == "QUANTIZE" else [*graph.operators, made]
