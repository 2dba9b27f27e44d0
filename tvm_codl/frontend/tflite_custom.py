"""MediaPipe's custom operators, written in TFLite's own."""

from __future__ import annotations

import copy

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tvm_codl.frontend.tflite_file import operator_name, shape_of

#: A transposed convolution with bias.  Its options are three 32-bit integers: padding (1 same, 2 valid), and the strides
#: along x and y (TfLiteTransposeConvParams); its inputs are the picture, OHWI weights and a bias.
TRANSPOSED = "Convolution2DTransposeBias"
_PADDING = {1: schema.Padding.SAME, 2: schema.Padding.VALID}


def without_custom(model: schema.ModelT) -> schema.ModelT:
    """The model with TRANSPOSE_CONV, its bias fused, in place of each Convolution2DTransposeBias.

    Other custom operators stay.  Tensors keep their numbers; the given model is unchanged.
    """
    graph = model.subgraphs[0]
    if not any(operator_name(model, operator) == TRANSPOSED for operator in graph.operators):
        return model
    new = copy.copy(model)
    new.operatorCodes, new.buffers = list(model.operatorCodes), list(model.buffers)
    new.subgraphs = [copy.copy(graph)]
    tensors = new.subgraphs[0].tensors = list(graph.tensors)
    number = schema.BuiltinOperator.TRANSPOSE_CONV
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = number
    code.version = 3  # the first with a bias
    new.operatorCodes.append(code)

    def converted(operator: schema.OperatorT) -> schema.OperatorT:
        if operator_name(model, operator) != TRANSPOSED:
            return operator
        padding, across, down = np.asarray(operator.customOptions, np.uint8).view("<i4")[:3].tolist()
        size = np.array(shape_of(tensors[operator.outputs[0]]), np.int32)
        new.buffers.append(schema.BufferT(size.view(np.uint8)))
        shape = schema.TensorT(shape=[4], type=schema.TensorType.INT32, buffer=len(new.buffers) - 1)
        shape.name = f"{len(tensors)}.shape".encode()
        tensors.append(shape)
        options = schema.TransposeConvOptionsT(_PADDING[padding], across, down)
        x, weights, bias = operator.inputs
        made = copy.copy(operator)
        made.opcodeIndex, made.inputs = len(new.operatorCodes) - 1, [len(tensors) - 1, weights, x, bias]
        made.builtinOptionsType, made.builtinOptions = schema.BuiltinOptions.TransposeConvOptions, options
        made.customOptions = None
        return made

    new.subgraphs[0].operators = [converted(operator) for operator in graph.operators]
    return new
