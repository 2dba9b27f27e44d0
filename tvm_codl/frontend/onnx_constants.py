"""Rewrites an ONNX model for TVM's importer: constants stand where its converters look for them.

The importer takes every initializer for unknown, and several of its converters (TVM 0.19, ``relay/frontend/onnx.py``)
need the values of axes, sizes and bounds, or read only a part of those that are inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_codl.errors import UserError
from tvm_codl.frontend.onnx_types import infer_types
from tvm_codl.relay.model import Shape

#: Integer tensors of at most so many elements may be axes, sizes or bounds.
MOST = 1024
_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)
_RESIZES = ("Resize", "Upsample")

Constants = Mapping[str, np.ndarray]


def prepare_constants(proto: onnx.ModelProto, shapes: Mapping[str, Shape], path: Path) -> None:
    """Changes ``proto``; ``shapes`` are those of its inputs.

    Small integer initializers and the scales of a resize become Constant nodes; axes of reductions become attributes;
    if an Unsqueeze has several axes, negative ones become positive.  Raises :class:`UserError` for a resize that TVM
    computes otherwise than ONNX says.
    """
    constants: dict[str, np.ndarray] = {}
    for graph in _graphs(proto.graph):
        _store_numbers_as_tensors(graph)
        _move_initializers(graph)
        for node in graph.node:
            constants.update(_evaluate(node, constants))
            if node.op_type.startswith("Reduce"):
                _move_axes(node, constants, path)
    resizes = [n for n in proto.graph.node if n.op_type in _RESIZES and _may_differ(n, constants)]
    unsqueezes = [n for n in proto.graph.node if n.op_type == "Unsqueeze" and _mixes_signs(n, constants)]
    if resizes or unsqueezes:
        inferred = _infer_shapes(proto, shapes)
        for node in resizes:
            _check_resize(node, constants, inferred, path)
        for node in unsqueezes:
            if node.input[0] in inferred:
                _make_positive(proto.graph, node, constants, len(inferred[node.input[0]]))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and the bodies of its branches and loops, which may read its constants."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _store_numbers_as_tensors(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        for name, number in _attributes(node).items() if node.op_type == "Constant" else ():
            if name in ("value_int", "value_ints", "value_float", "value_floats"):
                value = np.array(number, np.int64 if "int" in name else np.float32)
                node.CopyFrom(_constant_node(node.output[0], value))


def _constant_node(name: str, value: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


def _move_initializers(graph: onnx.GraphProto) -> None:
    scales = {name for node in graph.node if node.op_type in _RESIZES for name in node.input[1:] if name}
    moved = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if len(tensor.dims) <= 1
        and int(np.prod(tensor.dims, dtype=np.int64)) <= MOST
        and (tensor.data_type in _INTEGERS or tensor.name in scales)
    }
    nodes = [*(_constant_node(name, value) for name, value in moved.items()), *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for listed in (graph.initializer, graph.input):
        for value in [value for value in listed if value.name in moved]:
            listed.remove(value)


def _evaluate(node: onnx.NodeProto, constants: Constants) -> dict[str, np.ndarray]:
    """The output of a Constant, or of a copy or concatenation of constant integers."""
    if node.op_type == "Constant":
        tensor = _attributes(node).get("value")
        if tensor is None or tensor.data_type == onnx.TensorProto.STRING:
            return {}
        return {node.output[0]: numpy_helper.to_array(tensor)}
    if node.op_type in ("Identity", "Cast", "Concat") and all(name in constants for name in node.input):
        values = [constants[name] for name in node.input]
        if all(value.dtype.kind in "iub" and value.ndim <= 1 for value in values):
            return {node.output[0]: np.concatenate(values) if node.op_type == "Concat" else values[0]}
    return {}


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _set_attributes(node: onnx.NodeProto, values: Mapping[str, Any]) -> None:
    del node.attribute[:]
    node.attribute.extend(helper.make_attribute(name, value) for name, value in values.items())


def _constant_input(node: onnx.NodeProto, place: int, name: str, constants: Constants) -> np.ndarray | None:
    """An input if it is constant, or the attribute that older operator sets have in its place."""
    value = constants.get(node.input[place]) if len(node.input) > place else _attributes(node).get(name)
    return None if value is None else np.asarray(value).reshape(-1)


def _move_axes(node: onnx.NodeProto, constants: Constants, path: Path) -> None:
    """Axes become an attribute: TVM's converter would reduce only the first axis of an input."""
    if len(node.input) < 2 or not node.input[1]:
        return
    axes = constants.get(node.input[1])
    if axes is None:
        raise UserError(
            f"{path.name} reduces over axes that are computed",
            f"node {node.name or node.output[0]!r}, {node.op_type} over {node.input[1]!r}",
            "export the model with constant axes, e.g. by onnxsim",
        )
    del node.input[1:]
    attributes = _attributes(node)
    idle = attributes.pop("noop_with_empty_axes", 0)
    if axes.size:
        attributes["axes"] = [int(axis) for axis in axes.reshape(-1)]
    elif idle:
        node.op_type, attributes = "Identity", {}
    _set_attributes(node, attributes)


def _mixes_signs(node: onnx.NodeProto, constants: Constants) -> bool:
    axes = _constant_input(node, 1, "axes", constants)
    return axes is not None and axes.size > 1 and int(axes.min()) < 0


def _make_positive(graph: onnx.GraphProto, node: onnx.NodeProto, constants: Constants, rank: int) -> None:
    axes = _constant_input(node, 1, "axes", constants)
    assert axes is not None
    positive = np.where(axes < 0, axes + rank + axes.size, axes).astype(np.int64)
    if len(node.input) == 1:
        _set_attributes(node, {"axes": positive.tolist()})
        return
    node.input[1] = f"{node.output[0]}.positive_axes"
    graph.node.insert(0, _constant_node(node.input[1], positive))


def _scales(node: onnx.NodeProto, constants: Constants) -> np.ndarray | None:
    """A resize's scales, if it has them and they are constant."""
    place = 2 if node.op_type == "Resize" and len(node.input) > 2 else 1
    scales = _constant_input(node, place, "scales", constants)
    return None if scales is None or not scales.size else scales.astype(np.float64)


def _may_differ(node: onnx.NodeProto, constants: Constants) -> bool:
    scales, attributes = _scales(node, constants), _attributes(node)
    fraction = scales is not None and bool(np.any(scales != np.round(scales)))
    aligned = attributes.get("coordinate_transformation_mode") == b"align_corners"
    return bool(attributes.get("antialias", 0)) or (fraction and not aligned)


def _check_resize(node: onnx.NodeProto, constants: Constants, shapes: Mapping[str, Shape], path: Path) -> None:
    """TVM keeps the output's size, and takes the ratio of sizes for the scale."""
    name = node.name or node.output[0]
    if _attributes(node).get("antialias", 0):
        raise UserError(
            f"{path.name} resizes with antialiasing",
            f"node {name!r}: TVM's importer leaves it out",
            "export the model with antialias=0",
        )
    scales, shape = _scales(node, constants), shapes.get(node.input[0])
    if scales is None or shape is None or len(shape) != len(scales) or 0 in shape:
        return
    exact = np.asarray(shape) * scales
    if np.any(np.abs(exact - np.round(exact)) > 1e-3):
        raise UserError(
            f"{path.name} resizes to sizes that its scales do not give exactly",
            f"node {name!r}: {list(shape)} times {[round(float(s), 6) for s in scales]}; TVM would scale by the ratio of "
            "the rounded sizes",
            "give the input another size (--shape), or export the model with sizes in place of scales",
        )


def _infer_shapes(proto: onnx.ModelProto, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes of values; 0 for an unknown extent."""
    return {
        name: tuple(dim.dim_value if dim.HasField("dim_value") else 0 for dim in kind.tensor_type.shape.dim)
        for name, kind in infer_types(proto, shapes).items()
        if kind.tensor_type.HasField("shape")
    }
