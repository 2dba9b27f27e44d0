"""The types of a model's values, as ONNX's own inference finds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from onnx import helper

from tvm_codl.relay.model import Shape

Types = Mapping[str, onnx.TypeProto]
#: Inference reads the numbers of constants of so many elements, and the types of larger ones.
_READ = 4096


def infer_types(proto: onnx.ModelProto, shapes: Mapping[str, Shape]) -> dict[str, onnx.TypeProto]:
    """By name, the types of the values that inference finds.  ``shapes`` are those of the inputs.

    Behind an operator that ONNX does not know there are none; a model that contradicts itself has those of its inputs and
    weights alone.
    """
    copy = _without_weights(proto)
    for value in copy.graph.input:
        if value.name in shapes:
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, list(shapes[value.name])))
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = _inferred(copy) or _inferred(_known_nodes(copy)) or copy.graph
    weights = {t.name: helper.make_tensor_type_proto(t.data_type, list(t.dims)) for t in proto.graph.initializer}
    return weights | {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}


def _inferred(proto: onnx.ModelProto) -> onnx.GraphProto | None:
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    except (ValueError, RuntimeError, EncodeError, onnx.shape_inference.InferenceError):
        return None


def _known_nodes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the nodes of which ONNX has no definition: inference ends at the first of them."""
    versions = {each.domain: each.version for each in proto.opset_import}
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.node[:]
    copy.graph.node.extend(
        node
        for node in proto.graph.node
        if node.domain in versions and onnx.defs.has(node.op_type, versions[node.domain], node.domain)
    )
    return copy


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large initializers are inputs: inference is then fast, and not bound to 2 GB."""
    graph = proto.graph
    small = [t for t in graph.initializer if int(np.prod(t.dims, dtype=np.int64)) <= _READ]
    named = {value.name for value in graph.input}
    large = [t for t in graph.initializer if t.name not in named and int(np.prod(t.dims, dtype=np.int64)) > _READ]
    inputs = [*graph.input, *(helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in large)]
    bare = helper.make_graph(graph.node, graph.name, inputs, graph.output, small, value_info=graph.value_info)
    copy = helper.make_model(bare, opset_imports=proto.opset_import, functions=proto.functions)
    copy.ir_version = proto.ir_version
    return copy


def shape_of(name: str, types: Types) -> Shape | None:
    """A value's shape, where it is known."""
    tensor = types[name].tensor_type if name in types else None
    if tensor is None or not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    return tuple(dim.dim_value for dim in tensor.shape.dim)


def element_type(name: str, types: Types) -> int:
    """0 where it is not known."""
    return types[name].tensor_type.elem_type if name in types else 0


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
