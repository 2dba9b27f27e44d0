"""Rewrites an ONNX model for TVM's importer: constants stand where its converters look for them.

The importer takes every initializer for unknown, and several of its converters (TVM 0.19, ``relay/frontend/onnx.py``)
need the values of axes, sizes and bounds, or read only a part of those that are inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_codl.frontend.onnx_fold import Constants, constant_node, small_constants
from tvm_codl.frontend.onnx_types import Types, attributes_of, shape_of

#: Integer tensors of at most so many elements may be axes, sizes or bounds.
MOST = 1024
_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)


def prepare_constants(proto: onnx.ModelProto, types: Types) -> None:
    """Changes ``proto``; ``types`` has those of its values.

    Small integer initializers and the scales of a resize become Constant nodes; axes of reductions become attributes;
    if an Unsqueeze has several axes, negative ones become positive.
    """
    graph, constants = proto.graph, small_constants(proto.graph)
    _store_numbers_as_tensors(graph)
    _move_initializers(graph)
    for node in list(graph.node):
        shape = shape_of(node.input[0], types) if node.op_type == "Unsqueeze" else None
        if node.op_type.startswith("Reduce"):
            _move_axes(node, constants)
        elif shape is not None and _mixes_signs(node, constants):
            _make_positive(graph, node, constants, len(shape))


def _store_numbers_as_tensors(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        for name, number in attributes_of(node).items() if node.op_type == "Constant" else ():
            if name in ("value_int", "value_ints", "value_float", "value_floats"):
                value = np.array(number, np.int64 if "int" in name else np.float32)
                node.CopyFrom(constant_node(node.output[0], value))


def _move_initializers(graph: onnx.GraphProto) -> None:
    resizes = ("Resize", "Upsample")
    scales = {name for node in graph.node if node.op_type in resizes for name in node.input[1:] if name}
    moved = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if len(tensor.dims) <= 1
        and int(np.prod(tensor.dims, dtype=np.int64)) <= MOST
        and (tensor.data_type in _INTEGERS or tensor.name in scales)
    }
    nodes = [*(constant_node(name, value) for name, value in moved.items()), *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for listed in (graph.initializer, graph.input):
        for value in [value for value in listed if value.name in moved]:
            listed.remove(value)


def _set_attributes(node: onnx.NodeProto, values: Mapping[str, Any]) -> None:
    del node.attribute[:]
    node.attribute.extend(helper.make_attribute(name, value) for name, value in values.items())


def _move_axes(node: onnx.NodeProto, constants: Constants) -> None:
    """Axes become an attribute: TVM's converter would reduce only the first axis of an input."""
    if len(node.input) < 2 or not node.input[1]:
        return
    axes = constants[node.input[1]]
    del node.input[1:]
    attributes = attributes_of(node)
    idle = attributes.pop("noop_with_empty_axes", 0)
    if axes.size:
        attributes["axes"] = [int(axis) for axis in axes.reshape(-1)]
    elif idle:
        node.op_type, attributes = "Identity", {}
    _set_attributes(node, attributes)


def _axes_of(node: onnx.NodeProto, constants: Constants) -> np.ndarray:
    """Those of an Unsqueeze, an input or an attribute of older operator sets; none where they are computed."""
    axes = constants.get(node.input[1]) if len(node.input) > 1 else attributes_of(node).get("axes")
    return np.asarray([] if axes is None else axes).reshape(-1)


def _mixes_signs(node: onnx.NodeProto, constants: Constants) -> bool:
    axes = _axes_of(node, constants)
    return axes.size > 1 and int(axes.min()) < 0


def _make_positive(graph: onnx.GraphProto, node: onnx.NodeProto, constants: Constants, rank: int) -> None:
    axes = _axes_of(node, constants)
    positive = np.where(axes < 0, axes + rank + axes.size, axes).astype(np.int64)
    if len(node.input) == 1:
        _set_attributes(node, {"axes": positive.tolist()})
        return
    node.input[1] = f"{node.output[0]}.positive_axes"
    graph.node.insert(0, constant_node(node.input[1], positive))
