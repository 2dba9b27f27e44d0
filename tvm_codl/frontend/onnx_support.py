"""What of ONNX cannot run, found before anything is imported: every offending operator in one list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
from onnx import TensorProto

from tvm_codl.errors import UserError
from tvm_codl.frontend.onnx_functions import known_operators, opset_of
from tvm_codl.frontend.onnx_repairs import Types, attributes_of, shape_of

#: The element types of tensors that the co-executor takes.
TYPES = ("FLOAT", "FLOAT16", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT32", "BOOL")
_NUMBERS = frozenset(TensorProto.DataType.Value(name) for name in TYPES)
_RANDOM = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
)  # fmt: skip
_SHOWN = 20

#: Why a node cannot run, empty where it can.
Refusal = Callable[[onnx.NodeProto, Types], str]


def check_support(proto: onnx.ModelProto, types: Types, path: Path) -> None:
    """Raises :class:`UserError` that lists all operators that cannot run, and where they are."""
    found = [
        f"{node.op_type} (node {node.name or node.output[0]!r}): {why}"
        for node in proto.graph.node
        if (why := next(_complaints(node, opset_of(proto), types), ""))
    ]
    if not found:
        return
    kinds = sorted({line.partition(" ")[0] + line.partition(")")[2] for line in found})
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    raise UserError(
        f"{path.name} uses what cannot run: {'; '.join(kinds[:_SHOWN])}",
        "; ".join(found[:_SHOWN] + more),
        "export the model without these operators, e.g. by onnxsim, another opset_version, or types among "
        + ", ".join(name.lower() for name in TYPES),
    )


def _complaints(node: onnx.NodeProto, opset: int, types: Types) -> Iterator[str]:
    if node.op_type not in known_operators(opset) or node.domain.startswith("ai.onnx."):
        yield "TVM's importer does not know it"
    if node.op_type in _RANDOM:
        yield "its result is random"
    for name in (*node.input, *node.output):
        kind = types[name].tensor_type.elem_type if name in types else 0
        if kind and kind not in _NUMBERS:
            yield f"of type {TensorProto.DataType.Name(kind).lower()}"
    if node.op_type in REFUSALS and (why := REFUSALS[node.op_type](node, types)):
        yield why


def _ceil_mode(node: onnx.NodeProto, types: Types) -> str:
    """ONNX drops windows that start behind the input."""
    attributes, shape = attributes_of(node), shape_of(node.input[0], types)
    if not attributes.get("ceil_mode"):
        return ""
    if shape is None:
        return "ceil_mode, and its input's shape is not known"
    if node.op_type == "AveragePool" and attributes.get("count_include_pad"):
        return "ceil_mode with count_include_pad: TVM counts what lies behind the padding"
    window = attributes["kernel_shape"]
    count = len(window)
    strides, dilations = attributes.get("strides", [1] * count), attributes.get("dilations", [1] * count)
    pads = attributes.get("pads", [0] * (2 * count))
    for i, extent in enumerate(shape[2:]):
        last = -(-(extent + pads[i] + pads[i + count] - dilations[i] * (window[i] - 1) - 1) // strides[i])
        if last * strides[i] >= extent + pads[i]:
            return "ceil_mode, and a window starts behind the input"
    return ""


def _roi_align(node: onnx.NodeProto, types: Types) -> str:
    attributes = attributes_of(node)
    if attributes.get("mode") == b"max":
        return "TVM takes the maximum over other points"
    if attributes.get("coordinate_transformation_mode", b"half_pixel") != b"output_half_pixel":
        return "TVM does not move coordinates by half a pixel"
    return ""


def _dropout(node: onnx.NodeProto, types: Types) -> str:
    return "training_mode: what it drops is random" if len(node.input) > 2 and node.input[2] else ""


def _dft(node: onnx.NodeProto, types: Types) -> str:
    """Since operator set 20 the axis is an input, and the last but one where there is none."""
    shape = shape_of(node.input[0], types)
    if len(node.input) > 2 or shape is None or (len(shape) != 3 and "axis" not in attributes_of(node)):
        return "TVM transforms along axis 1"
    return ""


REFUSALS: dict[str, Refusal] = {
    "AveragePool": _ceil_mode,
    "DFT": _dft,
    "Dropout": _dropout,
    "LpPool": lambda node, types: "TVM computes it otherwise than ONNX says",
    "MaxPool": _ceil_mode,
    "QLinearMatMul": lambda node, types: "TVM rounds otherwise than ONNX says",
    "RoiAlign": _roi_align,
    "SequenceErase": lambda node, types: "TVM erases another tensor than ONNX says",
}
