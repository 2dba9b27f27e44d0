"""What of ONNX cannot run, found before anything is imported: every offending operator in one list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import TensorProto

from tvm_codl.errors import UserError
from tvm_codl.frontend.onnx_fold import Constants, small_constants
from tvm_codl.frontend.onnx_functions import known_operators, opset_of
from tvm_codl.frontend.onnx_refusals import REFUSALS
from tvm_codl.frontend.onnx_types import Types

#: The element types of tensors that the co-executor takes.
TYPES = ("FLOAT", "FLOAT16", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT32", "BOOL")
UNKNOWN = "TVM's importer does not know it"
_NUMBERS = frozenset(TensorProto.DataType.Value(name) for name in TYPES)
_SHOWN = 20


def check_support(proto: onnx.ModelProto, types: Types, path: Path) -> None:
    """Raises :class:`UserError` that lists all operators that cannot run, why, and where they are."""
    opset, constants = opset_of(proto), small_constants(proto.graph)
    found = [
        (node, " and ".join(dict.fromkeys(reasons)))
        for node in proto.graph.node
        if (reasons := list(_complaints(node, opset, types, constants)))
    ]
    if not found:
        return
    kinds = list(dict.fromkeys(f"{node.op_type}: {why}" for node, why in found))
    lines = [f"{node.op_type} (node {node.name or node.output[0]!r}): {why}" for node, why in found[:_SHOWN]]
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    raise UserError(
        f"{path.name} uses what cannot run: {'; '.join(kinds[:_SHOWN])}",
        "; ".join(lines + more),
        "export the model without these operators (onnxsim, another opset_version), of tensors among "
        f"{', '.join(name.lower() for name in TYPES)}; tvm-codl check --list says what is supported",
    )


def _complaints(node: onnx.NodeProto, opset: int, types: Types, constants: Constants) -> Iterator[str]:
    if node.op_type not in known_operators(opset) or node.domain.startswith("ai.onnx."):
        yield UNKNOWN
    elif node.op_type in REFUSALS and (why := REFUSALS[node.op_type].why(node, types, constants)):
        yield why
    for name in (*node.input, *node.output):
        kind = types[name].tensor_type.elem_type if name in types else 0
        if kind and kind not in _NUMBERS:
            yield f"of type {TensorProto.DataType.Name(kind).lower()}"
