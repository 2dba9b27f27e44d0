"""What of ONNX cannot run, found before anything is imported: every offending operator in one list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import onnx
from onnx import TensorProto

from tvm_codl.errors import UserError
from tvm_codl.frontend.onnx_functions import known_operators, opset_of
from tvm_codl.frontend.onnx_repairs import attributes_of

#: The element types of tensors that both processors compute with.
TYPES = ("FLOAT", "FLOAT16", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "BOOL")
_NUMBERS = frozenset(TensorProto.DataType.Value(name) for name in TYPES)
_RANDOM = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
)  # fmt: skip
_SHOWN = 20

#: By operator, what an operator must not be, and why: TVM computes otherwise than ONNX says.
Refusal = Callable[[onnx.NodeProto], str]


def check_support(proto: onnx.ModelProto, types: Mapping[str, onnx.TypeProto], path: Path) -> None:
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


def _complaints(node: onnx.NodeProto, opset: int, types: Mapping[str, onnx.TypeProto]) -> Iterator[str]:
    if node.op_type not in known_operators(opset) or node.domain.startswith("ai.onnx."):
        yield "TVM's importer does not know it"
    if node.op_type in _RANDOM:
        yield "its result is random"
    for name in (*node.input, *node.output):
        kind = types[name].tensor_type.elem_type if name in types else 0
        if kind and kind not in _NUMBERS:
            yield f"of type {TensorProto.DataType.Name(kind).lower()}"
    if node.op_type in REFUSALS and (why := REFUSALS[node.op_type](node)):
        yield why


def _ceil_mode(node: onnx.NodeProto) -> str:
    return "ceil_mode" if attributes_of(node).get("ceil_mode") else ""


def _lp_pool(node: onnx.NodeProto) -> str:
    return "TVM takes roots of powers of negative numbers"


def _roi_align(node: onnx.NodeProto) -> str:
    attributes = attributes_of(node)
    if attributes.get("mode") == b"max":
        return "TVM takes the maximum over other points"
    if attributes.get("coordinate_transformation_mode", b"half_pixel") != b"output_half_pixel":
        return "TVM does not move coordinates by half a pixel"
    return ""


REFUSALS: dict[str, Refusal] = {
    "RoiAlign": _roi_align,
}
