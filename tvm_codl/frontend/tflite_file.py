"""Reading and writing TFLite files: a flatbuffer as plain objects, checked before anything relies on it."""

from __future__ import annotations

from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tvm_codl.errors import UserError

IDENTIFIER = b"TFL3"
CHECK = "python -c 'import sys; from ai_edge_litert.interpreter import Interpreter as I; I(sys.argv[1])' {}"

_TYPES = {number: name.lower() for name, number in vars(schema.TensorType).items() if name.isupper()}
_OPERATORS = {number: name for name, number in vars(schema.BuiltinOperator).items() if name.isupper()}


def is_tflite(path: Path) -> bool:
    """By the file's name, or by the identifier within it."""
    if path.suffix == ".tflite" or not path.is_file():
        return path.suffix == ".tflite"
    with path.open("rb") as file:
        return file.read(8)[4:] == IDENTIFIER


def read_tflite(path: Path) -> schema.ModelT:
    """The file's content.  Raises :class:`UserError` if it is missing, no TFLite, damaged, or has several graphs.

    A model that passes has one graph, whose operators read only its inputs, constants, and what operators before them
    made, and whose constants have as many bytes as their shapes say.
    """
    if not path.is_file():
        raise UserError(
            f"no such model file: {path}", "", "name an .onnx or .tflite file or a zoo model, e.g. zoo:resnet18"
        )
    content = path.read_bytes()
    if content[4:8] != IDENTIFIER:
        evidence = f"{len(content)} bytes, with {content[4:8]!r} where {IDENTIFIER!r} should be"
        raise UserError(f"{path} is not a TFLite file", evidence, CHECK.format(path))
    try:
        model = schema.ModelT.InitFromPackedBuf(content, 0)
        damage = _damage(model)
    except Exception as error:  # struct.error, IndexError, ValueError, TypeError: whatever the bytes lead to
        raise UserError(f"{path} is damaged", f"{type(error).__name__}: {error}", CHECK.format(path)) from error
    if damage:
        raise UserError(f"{path} is damaged", damage, CHECK.format(path))
    if len(model.subgraphs) > 1:
        found = sorted({operator_name(model, operator) for operator in model.subgraphs[0].operators})
        raise UserError(
            f"{path.name} has {len(model.subgraphs)} graphs, as control flow does; one is supported",
            f"the operators of the first: {', '.join(found)}",
            "export the model without control flow",
        )
    return model


def write_tflite(model: schema.ModelT) -> bytes:
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())


def tensor_name(tensor: schema.TensorT) -> str:
    return (tensor.name or b"").decode("utf-8")


def shape_of(tensor: schema.TensorT) -> tuple[int, ...]:
    return tuple(int(size) for size in _listed(tensor.shape))


def dtype_of(tensor: schema.TensorT) -> str:
    """Its type in numpy's words, or in TFLite's where numpy has none."""
    return _TYPES[tensor.type]


def operator_name(model: schema.ModelT, operator: schema.OperatorT) -> str:
    """As TFLite writes it; a custom operator's own name."""
    code = model.operatorCodes[operator.opcodeIndex]
    number = max(code.builtinCode, code.deprecatedBuiltinCode)
    if number == schema.BuiltinOperator.CUSTOM:
        return (code.customCode or b"CUSTOM").decode("utf-8")
    return _OPERATORS.get(number, f"operator {number}")


def constant(model: schema.ModelT, tensor: schema.TensorT) -> np.ndarray | None:
    """The value of a constant; None of what operators compute."""
    data = model.buffers[tensor.buffer].data
    if data is None or not len(data):
        return None
    return np.asarray(data, np.uint8).view(dtype_of(tensor)).reshape(shape_of(tensor))


def _listed(values: object) -> list[int]:
    return [] if values is None else list(values)  # type: ignore[call-overload]


def _damage(model: schema.ModelT) -> str:
    """What makes the model unusable; raises whatever it comes upon where an index or a name is wrong."""
    for graph in model.subgraphs:
        tensors = graph.tensors
        for index, tensor in enumerate(tensors):
            tensor_name(tensor)
            if min((*shape_of(tensor), 0)) < 0 or not 0 <= tensor.buffer < len(model.buffers):
                return f"tensor {index} has shape {shape_of(tensor)} and buffer {tensor.buffer}"
            if dtype_of(tensor) != "string" and tensor.sparsity is None:
                constant(model, tensor)
        known = {index for index, tensor in enumerate(tensors) if _has_data(model, tensor)}
        known.update(_inside(graph.inputs, tensors))
        for place, operator in enumerate(graph.operators):
            name = operator_name(model, operator)
            missing = [i for i in _listed(operator.inputs) if i != -1 and i not in known]
            # A variable's state is made by no operator.
            missing = [i for i in missing if not tensors[i].isVariable]
            if missing:
                return f"operator {place} ({name}) reads tensor {missing[0]}, which nothing before it makes"
            known.update(_inside(operator.outputs, tensors))
        if not graph.operators or not set(_inside(graph.outputs, tensors)) or not set(graph.outputs) <= known:
            return "it has no operators, no outputs, or outputs that nothing makes"
    return "" if model.subgraphs else "it holds no graph"


def _has_data(model: schema.ModelT, tensor: schema.TensorT) -> bool:
    data = model.buffers[tensor.buffer].data
    return (data is not None and len(data) > 0) or 0 in shape_of(tensor)


def _inside(indices: object, tensors: list[schema.TensorT]) -> list[int]:
    found = _listed(indices)
    if any(not 0 <= index < len(tensors) for index in found):
        raise IndexError(f"tensors {[int(i) for i in found]} of {len(tensors)}")
    return found
