"""An ONNX model as TVM's importer reads it right: constants stand where its converters look for them.

The importer makes an unknown of every initializer, and several of its converters (TVM 0.19, ``relay/frontend/onnx.py``)
want to know what axes, sizes and bounds are; of some that are given as inputs they read a part only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from onnx import helper, numpy_helper

from tvm_codl.errors import UserError
from tvm_codl.relay.model import Shape

#: What has no more elements and is one of these may say how a tensor is shaped.
MOST = 1024
_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)
_RESIZES = ("Resize", "Upsample")


def prepare_constants(proto: onnx.ModelProto, shapes: Mapping[str, Shape], path: Path) -> None:
    """Changes ``proto``; ``shapes`` are those of its inputs.

    Small integer initializers and the scales of a resize become Constant nodes; axes of reductions become attributes; negative
    axes of an Unsqueeze with several are counted from the front.  Raises :class:`UserError` for a resize that TVM
    computes otherwise than ONNX says.
    """
    constants: dict[str, np.ndarray] = {}
    for graph in _graphs(proto.graph):
        _spell_out(graph)
        _from_initializers(graph)
        for node in graph.node:
            constants.update(_constants(node, constants))
            if node.op_type.startswith("Reduce"):
                _reduction(node, constants, path)
    fractions = [n for n in proto.graph.node if n.op_type in _RESIZES and _may_differ(n, constants)]
    several = [n for n in proto.graph.node if n.op_type == "Unsqueeze" and _counts_back(_axes(n, constants))]
    if fractions or several:
        known = _inferred(proto, shapes)
        for node in fractions:
            _check_resize(node, constants, known, path)
        for node in several:
            _from_the_front(proto.graph, node, _axes(node, constants), known)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and the bodies of its branches and loops, which may read its constants."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _spell_out(graph: onnx.GraphProto) -> None:
    """Constant nodes of numbers as Constant nodes of tensors."""
    for node in graph.node:
        if node.op_type != "Constant":
            continue
        for attribute in list(node.attribute):
            if attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
                kind = np.int64 if "int" in attribute.name else np.float32
                value = np.array(helper.get_attribute_value(attribute), kind)
                node.attribute.remove(attribute)
                node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))


def _from_initializers(graph: onnx.GraphProto) -> None:
    scales = {name for node in graph.node if node.op_type in _RESIZES for name in node.input[1:] if name}
    moved = [
        tensor
        for tensor in graph.initializer
        if len(tensor.dims) <= 1
        and int(np.prod(tensor.dims, dtype=np.int64)) <= MOST
        and (tensor.data_type in _INTEGERS or tensor.name in scales)
    ]
    names = {tensor.name for tensor in moved}
    nodes = [helper.make_node("Constant", [], [t.name], value=numpy_helper.from_array(numpy_helper.to_array(t))) for t in moved]  # fmt: skip
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)
    for listed in (graph.initializer, graph.input):
        for one in [one for one in listed if one.name in names]:
            listed.remove(one)


def _constants(node: onnx.NodeProto, known: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """What a node makes of constants, where it does little with them."""
    if node.op_type == "Constant":
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.t.data_type != onnx.TensorProto.STRING:
                yield node.output[0], numpy_helper.to_array(attribute.t)
    elif node.op_type in ("Identity", "Cast", "Concat") and all(name in known for name in node.input):
        values = [known[name] for name in node.input]
        if all(value.dtype.kind in "iub" and value.ndim <= 1 for value in values):
            yield node.output[0], np.concatenate(values) if node.op_type == "Concat" else values[0]


def _attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _reduction(node: onnx.NodeProto, constants: Mapping[str, np.ndarray], path: Path) -> None:
    """Axes as an attribute: of those that come as an input only the first would be reduced."""
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
    idle = _attribute(node, "noop_with_empty_axes", 0)
    for attribute in [a for a in node.attribute if a.name == "noop_with_empty_axes"]:
        node.attribute.remove(attribute)
    if axes.size:
        node.attribute.append(helper.make_attribute("axes", [int(axis) for axis in axes.reshape(-1)]))
    elif idle:
        node.op_type = "Identity"
        del node.attribute[:]


def _axes(node: onnx.NodeProto, constants: Mapping[str, np.ndarray]) -> list[int]:
    """Those of an Unsqueeze; none where they are computed."""
    given = constants.get(node.input[1]) if len(node.input) > 1 else _attribute(node, "axes")
    return [] if given is None else [int(axis) for axis in np.asarray(given).reshape(-1)]


def _counts_back(axes: list[int]) -> bool:
    return len(axes) > 1 and min(axes) < 0


def _from_the_front(graph: onnx.GraphProto, node: onnx.NodeProto, axes: list[int], known: Mapping[str, Shape]) -> None:
    if node.input[0] not in known:
        return
    rank = len(known[node.input[0]]) + len(axes)
    front = [axis + rank if axis < 0 else axis for axis in axes]
    if len(node.input) == 1:
        (attribute,) = node.attribute
        attribute.CopyFrom(helper.make_attribute("axes", front))
        return
    name = f"{node.output[0]}.axes_from_the_front"
    value = numpy_helper.from_array(np.array(front, np.int64))
    node.input[1] = name
    graph.node.insert(0, helper.make_node("Constant", [], [name], value=value))


def _scales(node: onnx.NodeProto, constants: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """A resize's scales, where it has them and they are known."""
    place = 2 if node.op_type == "Resize" and len(node.input) > 2 else 1
    found = constants.get(node.input[place]) if len(node.input) > place else _attribute(node, "scales")
    return None if found is None or not np.size(found) else np.asarray(found, np.float64)


def _may_differ(node: onnx.NodeProto, constants: Mapping[str, np.ndarray]) -> bool:
    scales = _scales(node, constants)
    fraction = scales is not None and bool(np.any(scales != np.round(scales)))
    mode = _attribute(node, "coordinate_transformation_mode", b"half_pixel")
    return bool(_attribute(node, "antialias", 0)) or (fraction and mode != b"align_corners")


def _check_resize(
    node: onnx.NodeProto, constants: Mapping[str, np.ndarray], known: Mapping[str, Shape], path: Path
) -> None:
    """TVM keeps the size that comes out, and takes the ratio of sizes for the scale."""
    if _attribute(node, "antialias", 0):
        raise UserError(
            f"{path.name} resizes with antialiasing",
            f"node {node.name or node.output[0]!r}: TVM's importer leaves it out",
            "export the model with antialias=0",
        )
    scales, shape = _scales(node, constants), known.get(node.input[0])
    if scales is None or shape is None or len(shape) != len(scales) or 0 in shape:
        return
    exact = np.asarray(shape) * scales
    if np.any(np.abs(exact - np.round(exact)) > 1e-3):
        raise UserError(
            f"{path.name} resizes to sizes that its scales do not give exactly",
            f"node {node.name or node.output[0]!r}: {list(shape)} times {[round(float(s), 6) for s in scales]}; TVM would scale by "
            "the ratio of the rounded sizes",
            "give the input another size (--shape), or export the model with sizes in place of scales",
        )


def _inferred(proto: onnx.ModelProto, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes that ONNX's own inference finds; 0 for what it does not know.  A model of over 2 GB has none."""
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
    return {
        value.name: tuple(dim.dim_value if dim.HasField("dim_value") else 0 for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }
