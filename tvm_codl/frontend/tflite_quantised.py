"""A full-integer TFLite file in the form that all quantised networks come to: dequantise, an operator on floats, quantise."""

from __future__ import annotations

import copy

from ai_edge_litert import schema_py_generated as schema

from tvm_codl.frontend.tflite_file import dtype_of, operator_name

#: Of a bias the last.
_TYPES = ("int8", "uint8", "int32")
_CHANGE = ("DEQUANTIZE", "QUANTIZE")


def is_quantised(tensor: schema.TensorT) -> bool:
    how = tensor.quantization
    return how is not None and how.scale is not None and len(how.scale) > 0


def unquantisable(model: schema.ModelT, operator: schema.OperatorT) -> str:
    """Why an operator on quantised tensors has no such form; empty where it has."""
    graph = model.subgraphs[0]
    inputs = [graph.tensors[index] for index in operator.inputs if index >= 0]
    touched = [*inputs, *(graph.tensors[index] for index in operator.outputs)]
    types = sorted({dtype_of(tensor) for tensor in touched if is_quantised(tensor)})
    if set(types) - set(_TYPES):
        return f"of quantised {', '.join(types)}"
    # TFLite rounds such data to integers as it runs, each time to another scale.
    if operator_name(model, operator) not in _CHANGE and types and any(dtype_of(t) == "float32" for t in touched):
        return "of floats with quantised weights, full integer is supported"
    return ""


def dequantised(model: schema.ModelT) -> schema.ModelT:
    """The model with a DEQUANTIZE before and a QUANTIZE behind each operator on quantised tensors.

    Tensors keep their numbers; the given model is unchanged.
    """
    graph = model.subgraphs[0]
    if not any(is_quantised(tensor) for tensor in graph.tensors):
        return model
    new = copy.copy(model)
    new.operatorCodes, new.subgraphs = list(model.operatorCodes), [copy.copy(graph)]
    tensors = new.subgraphs[0].tensors = list(graph.tensors)
    operators: list[schema.OperatorT] = []
    floats: dict[int, int] = {}
    codes = {}
    for name in _CHANGE:
        number = getattr(schema.BuiltinOperator, name)
        codes[name] = len(new.operatorCodes)
        new.operatorCodes.append(schema.OperatorCodeT(number, version=1, builtinCode=number))

    def quantised(index: int) -> bool:
        return index >= 0 and is_quantised(tensors[index])

    def twin(index: int) -> int:
        """A tensor of floats like this one."""
        like = tensors[index]
        tensors.append(schema.TensorT(shape=like.shape, type=schema.TensorType.FLOAT32))
        tensors[-1].name = f"{len(tensors)}.float".encode()
        return len(tensors) - 1

    def read(index: int) -> int:
        if not quantised(index):
            return index
        if index not in floats:
            floats[index] = twin(index)
            operators.append(schema.OperatorT(codes["DEQUANTIZE"], [index], [floats[index]]))
        return floats[index]

    for operator in graph.operators:
        name = operator_name(model, operator)
        if name == "DEQUANTIZE" or not any(map(quantised, (*operator.inputs, *operator.outputs))):
            operators.append(operator)
            continue
        made = copy.copy(operator)
        made.inputs = [read(index) for index in operator.inputs]
        operators.append(made)
        if name != "QUANTIZE":
            made.outputs = [twin(index) if quantised(index) else index for index in operator.outputs]
            for source, target in zip(made.outputs, operator.outputs, strict=True):
                if source != target:
                    operators.append(schema.OperatorT(codes["QUANTIZE"], [source], [target]))
    new.subgraphs[0].operators = operators
    return new
