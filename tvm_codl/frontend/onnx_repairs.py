"""Rewrites single ONNX nodes that TVM's importer converts wrongly or stumbles over, to others of the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx
from onnx import TensorProto, helper

from tvm_codl.relay.model import Shape

#: Attributes that change nothing in what is run here: the seed of a Dropout that drops nothing, what becomes of
#: numbers too large for eight bits of a float (such casts are refused).
IDLE = {"Cast": ("saturate",), "CastLike": ("saturate",), "QuantizeLinear": ("saturate",), "Dropout": ("seed",)}
#: Windows whose padding TVM computes while the network runs.
_WINDOWS = ("Conv", "MaxPool", "AveragePool", "LpPool")

Types = Mapping[str, onnx.TypeProto]


def repair_nodes(proto: onnx.ModelProto, types: Types) -> None:
    """Changes ``proto``; ``types`` has those of its values."""
    nodes: list[onnx.NodeProto] = []
    for node in proto.graph.node:
        kept = [a for a in node.attribute if a.name not in IDLE.get(node.op_type, ())]
        del node.attribute[:]
        node.attribute.extend(kept)
        if node.op_type in _WINDOWS:
            _pad_explicitly(node, types)
        repair = _REPAIRS.get(node.op_type)
        nodes.extend(repair(node, types) if repair else [node])
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


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


def _pad_explicitly(node: onnx.NodeProto, types: Types) -> None:
    """SAME_UPPER and SAME_LOWER as numbers: TVM works them out by operators, some of which LLVM rejects."""
    attributes = attributes_of(node)
    shape = shape_of(node.input[0], types)
    how = attributes.get("auto_pad", b"NOTSET")
    weight = shape_of(node.input[1], types) if node.op_type == "Conv" else None
    window = attributes.get("kernel_shape") or (weight[2:] if weight else None)
    if how not in (b"SAME_UPPER", b"SAME_LOWER") or shape is None or window is None:
        return
    count = len(window)
    strides, dilations = attributes.get("strides", [1] * count), attributes.get("dilations", [1] * count)
    low, high = [], []
    for extent, size, stride, dilation in zip(shape[2:], window, strides, dilations, strict=True):
        total = max((-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
        less, more = total // 2, total - total // 2
        low.append(less if how == b"SAME_UPPER" else more)
        high.append(more if how == b"SAME_UPPER" else less)
    kept = [a for a in node.attribute if a.name not in ("auto_pad", "pads")]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("pads", [*low, *high])])


def _trilu(node: onnx.NodeProto, types: Types) -> list[onnx.NodeProto]:
    """TVM takes the number of a diagonal only as a tensor without axes."""
    if len(node.input) < 2 or shape_of(node.input[1], types) != (1,):
        return [node]
    scalar = f"{node.output[0]}.diagonal"
    squeeze = helper.make_node("Squeeze", [node.input[1]], [scalar])
    node.input[1] = scalar
    return [squeeze, node]


def _cast(node: onnx.NodeProto, types: Types) -> list[onnx.NodeProto]:
    """From float64 to float16 by way of float32: LLVM's own conversion is not in the libraries that it links to."""
    source = element_type(node.input[0], types)
    if source != TensorProto.DOUBLE or attributes_of(node).get("to") != TensorProto.FLOAT16:
        return [node]
    between = f"{node.output[0]}.float32"
    first = helper.make_node("Cast", [node.input[0]], [between], to=TensorProto.FLOAT)
    node.input[0] = between
    return [first, node]


def _cast_like(node: onnx.NodeProto, types: Types) -> list[onnx.NodeProto]:
    to = element_type(node.input[1], types)
    return _cast(helper.make_node("Cast", node.input[:1], node.output, node.name, to=to), types) if to else [node]


def _grid_sample(node: onnx.NodeProto, types: Types) -> list[onnx.NodeProto]:
    """TVM knows the names of operator set 16 only."""
    for attribute in node.attribute:
        if attribute.name == "mode":
            attribute.s = {b"linear": b"bilinear", b"cubic": b"bicubic"}.get(attribute.s, attribute.s)
    return [node]


_REPAIRS: dict[str, Callable[[onnx.NodeProto, Types], list[onnx.NodeProto]]] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "GridSample": _grid_sample,
    "Trilu": _trilu,
}
