"""The types of a model's values, as ONNX's own inference finds them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from google.protobuf.message import EncodeError
from onnx import helper

from tvm_codl.relay.model import Shape


def infer_types(proto: onnx.ModelProto, shapes: Mapping[str, Shape]) -> dict[str, onnx.TypeProto]:
    """By name, the types of the values that inference finds.  ``shapes`` are those of the inputs.

    A model of over 2 GB, or one that contradicts itself, has none.
    """
    try:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        for value in copy.graph.input:
            if value.name in shapes:
                kind = value.type.tensor_type.elem_type
                value.CopyFrom(helper.make_tensor_value_info(value.name, kind, list(shapes[value.name])))
        for value in copy.graph.output:
            value.type.tensor_type.ClearField("shape")
        graph = onnx.shape_inference.infer_shapes(copy, data_prop=True).graph
    except (ValueError, RuntimeError, EncodeError, onnx.shape_inference.InferenceError):
        return {}
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    weights = {t.name: helper.make_tensor_type_proto(t.data_type, list(t.dims)) for t in proto.graph.initializer}
    return weights | types
