"""Rewrites single ONNX nodes that TVM's importer converts wrongly or stumbles over, to others of the same meaning."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

from tvm_codl.frontend.onnx_fold import Constants, constant_node, small_constants
from tvm_codl.frontend.onnx_refusals import drops_at_random
from tvm_codl.frontend.onnx_resize import resize
from tvm_codl.frontend.onnx_types import Types, attributes_of, element_type, shape_of

#: Attributes that change nothing in what is run here: the seed of a Dropout that drops nothing, what becomes of
#: numbers too large for eight bits of a float (such casts are refused).
IDLE = {"Cast": ("saturate",), "CastLike": ("saturate",), "QuantizeLinear": ("saturate",), "Dropout": ("seed",)}
#: Windows whose padding TVM computes while the network runs.
WINDOWS = ("Conv", "MaxPool", "AveragePool", "LpPool")


#: What takes a node's place.
Repair = Callable[[onnx.NodeProto, Types, Constants], list[onnx.NodeProto]]


def repair_nodes(proto: onnx.ModelProto, types: Types) -> None:
    """Changes ``proto``; ``types`` has those of its values."""
    nodes: list[onnx.NodeProto] = []
    constants = small_constants(proto.graph)
    for node in proto.graph.node:
        kept = [a for a in node.attribute if a.name not in IDLE.get(node.op_type, ())]
        del node.attribute[:]
        node.attribute.extend(kept)
        if node.op_type in WINDOWS:
            _pad_explicitly(node, types)
        repair = REPAIRS.get(node.op_type)
        nodes.extend(repair(node, types, constants) if repair else [node])
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


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


def _trilu(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """TVM takes the number of a diagonal only as a tensor without axes."""
    if len(node.input) < 2 or shape_of(node.input[1], types) != (1,):
        return [node]
    scalar = f"{node.output[0]}.diagonal"
    squeeze = helper.make_node("Squeeze", [node.input[1]], [scalar])
    node.input[1] = scalar
    return [squeeze, node]


def _cast(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """From float64 to float16 by way of float32: LLVM's own conversion is not in the libraries that it links to."""
    source = element_type(node.input[0], types)
    if source != TensorProto.DOUBLE or attributes_of(node).get("to") != TensorProto.FLOAT16:
        return [node]
    between = f"{node.output[0]}.float32"
    first = helper.make_node("Cast", [node.input[0]], [between], to=TensorProto.FLOAT)
    node.input[0] = between
    return [first, node]


def _cast_like(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    to = element_type(node.input[1], types)
    made = helper.make_node("Cast", node.input[:1], node.output, node.name, to=to)
    return _cast(made, types, constants) if to else [node]


def _grid_sample(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """TVM knows the names of operator set 16 only."""
    for attribute in node.attribute:
        if attribute.name == "mode":
            attribute.s = {b"linear": b"bilinear", b"cubic": b"bicubic"}.get(attribute.s, attribute.s)
    return [node]


def _dropout(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """Dropout that drops nothing; TVM knows no ratio that is an input, and no mask."""
    if drops_at_random(node, types, constants):
        return [node]
    made = [helper.make_node("Identity", node.input[:1], node.output[:1], node.name)]
    shape = shape_of(node.input[0], types)
    if len(node.output) > 1 and node.output[1] and shape is not None:
        made.append(constant_node(node.output[1], np.ones(shape, bool)))
    return made


def _split(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """Parts of unequal size, as sizes: ``num_outputs`` of operator set 18, which TVM takes for equal ones."""
    attributes, shape = attributes_of(node), shape_of(node.input[0], types)
    if "num_outputs" not in attributes:
        return _parts(node, constants)
    count, axis = attributes["num_outputs"], attributes.get("axis", 0)
    name = f"{node.output[0]}.sizes"
    if shape is None or len(node.output) != count:
        return [node]
    part = -(-shape[axis] // count)
    sizes = np.array([*[part] * (count - 1), shape[axis] - part * (count - 1)], np.int64)
    made = helper.make_node("Split", [node.input[0], name], node.output, node.name, axis=axis)
    return [constant_node(name, sizes), made]


def _parts(node: onnx.NodeProto, constants: Constants) -> list[onnx.NodeProto]:
    """A split without its empty parts, which TVM refuses."""
    sizes = constants.get(node.input[1]) if len(node.input) > 1 else None
    if sizes is None or sizes.all():
        return [node]
    kept = [output for output, size in zip(node.output, sizes, strict=True) if size]
    if len(kept) == 1:
        return [helper.make_node("Identity", node.input[:1], kept, node.name)]
    name = f"{node.output[0]}.sizes"
    made = helper.make_node("Split", [node.input[0], name], kept, node.name)
    made.attribute.extend(node.attribute)
    return [constant_node(name, sizes[sizes > 0]), made]


def _concat(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """A join without empty parts."""
    kept = [name for name in node.input if 0 not in (shape_of(name, types) or ())]
    if kept and len(kept) < len(node.input):
        node.input[:] = kept
    return [node]


def _one_scale(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """A scale and a zero point of one element without axes: TVM takes them for those of an axis."""
    made: list[onnx.NodeProto] = []
    half = element_type(node.input[1], types) == TensorProto.FLOAT16  # refused by its type, which stays known
    for place, name in enumerate(node.input[1:3], 1):
        if not half and name and shape_of(name, types) == (1,):
            node.input[place] = f"{node.output[0]}.one{place}"
            made.append(helper.make_node("Squeeze", [name], [node.input[place]]))
    return [*made, node]


def _pad(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """Padding of some axes, as that of all: TVM does not read the axes."""
    shape = shape_of(node.input[0], types)
    if len(node.input) < 4 or shape is None or not {node.input[1], node.input[3]} <= constants.keys():
        return [node]
    name, count = f"{node.output[0]}.pads", len(shape)
    pads, full = constants[node.input[1]], np.zeros(2 * count, np.int64)
    axes = [int(axis) % count for axis in constants[node.input[3]]]
    full[axes], full[[count + axis for axis in axes]] = pads[: len(axes)], pads[len(axes) :]
    made = helper.make_node("Pad", [node.input[0], name, *node.input[2:3]], node.output, node.name)
    made.attribute.extend(node.attribute)
    return [constant_node(name, full), made]


def _lp_pool(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """The root of a sum of powers of absolute values; TVM leaves out the absolute values."""
    attributes = attributes_of(node)
    power, window = attributes.get("p", 2), attributes["kernel_shape"]
    kind = helper.tensor_dtype_to_np_dtype(element_type(node.input[0], types) or TensorProto.FLOAT)
    base = node.output[0]
    names = [f"{base}.{what}" for what in ("absolute", "p", "powers", "mean", "count", "sum", "root")]
    absolute, exponent, powers, mean, count, total, root = names
    pool = helper.make_node("AveragePool", [powers], [mean], node.name, count_include_pad=1)
    pool.attribute.extend(a for a in node.attribute if a.name != "p")
    return [
        helper.make_node("Abs", node.input, [absolute]),
        constant_node(exponent, np.array(power, kind)),
        helper.make_node("Pow", [absolute, exponent], [powers]),
        pool,
        constant_node(count, np.array(np.prod(window), kind)),
        helper.make_node("Mul", [mean, count], [total]),
        constant_node(root, np.array(1 / power, kind)),
        helper.make_node("Pow", [total, root], node.output),
    ]


def _dft(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """The axis as an attribute, in whose place operator set 20 has an input that TVM does not read."""
    if len(node.input) < 3 or node.input[2] not in constants:
        return [node]
    axis = int(constants[node.input[2]])
    made = helper.make_node("DFT", node.input[:2], node.output, node.name, axis=axis)
    made.attribute.extend(node.attribute)
    return [made]


def _batch_first(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """A recurrent network whose batch comes first, between transpositions: TVM's own fail."""
    if not attributes_of(node).get("layout"):
        return [node]
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    made.attribute.extend(a for a in node.attribute if a.name != "layout")
    before, after = [], []
    for place, perm in ((0, [1, 0, 2]), (5, [1, 0, 2]), (6, [1, 0, 2])):
        if len(node.input) > place and node.input[place]:
            made.input[place] = f"{node.output[-1]}.in{place}"
            before.append(helper.make_node("Transpose", [node.input[place]], [made.input[place]], perm=perm))
    for place, perm in ((0, [2, 0, 1, 3]), (1, [1, 0, 2]), (2, [1, 0, 2])):
        if len(node.output) > place and node.output[place]:
            made.output[place] = f"{node.output[place]}.batch_second"
            after.append(helper.make_node("Transpose", [made.output[place]], [node.output[place]], perm=perm))
    return [*before, made, *after]


REPAIRS: dict[str, Repair] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "DFT": _dft,
    "Concat": _concat,
    "DequantizeLinear": _one_scale,
    "Dropout": _dropout,
    "GRU": _batch_first,
    "GridSample": _grid_sample,
    "LSTM": _batch_first,
    "LpPool": _lp_pool,
    "Pad": _pad,
    "QuantizeLinear": _one_scale,
    "RNN": _batch_first,
    "Resize": resize,
    "Split": _split,
    "Trilu": _trilu,
}
