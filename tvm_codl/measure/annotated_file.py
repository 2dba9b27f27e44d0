"""A copy of an ONNX file in which each node says where the plan runs it, to be seen in Netron."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import onnx
from onnx.external_data_helper import uses_external_data

from tvm_codl.errors import UsageError
from tvm_codl.frontend.onnx_origin import operators_of_nodes
from tvm_codl.frontend.tflite_file import is_tflite
from tvm_codl.plan.plan import Plan, PlannedOperator
from tvm_codl.plan.reasons import placement_words
from tvm_codl.relay.model import LoadedModel
from tvm_codl.relay.prepared import Prepared
from tvm_codl.relay.spans import source_names

PREFIX = "tvm_codl."
#: The first version of ONNX's file format whose nodes have metadata, and the first whose weights need not be inputs.
_NODE_METADATA, _WEIGHTS_APART = 10, 4

#: What a node says of each of its operators; what the plan does not state is left out.
_FACTS: dict[str, Callable[[PlannedOperator], object]] = {
    "placement": lambda line: placement_words(line.placement),
    "operator": lambda line: f"{line.operator} {line.name}",
    "cpu_ms": lambda line: line.cpu_ms,
    "gpu_ms": lambda line: line.gpu_ms,
    "planned_ms": lambda line: line.planned_ms,
    "reason": lambda line: line.reason,
}


class Annotated(msgspec.Struct, frozen=True):
    """How many ``nodes`` the file has, and how many of them say where they run."""

    annotated: int
    nodes: int


def check_annotatable(model: LoadedModel, output: Path) -> Path:
    """The network's file.  Raises :class:`UsageError` where that is not ONNX, or a copy in ``output`` would not do."""
    if model.path is None or is_tflite(model.path):
        kind = "a TFLite file" if model.path else "no file"
        raise UsageError("--annotate writes a copy of an ONNX file", f"{model.name} comes from {kind}", "leave it out")
    if output.exists() and output.samefile(model.path):
        raise UsageError("--annotate writes a copy, not MODEL itself", str(output), "name another file")
    proto = onnx.load(model.path, load_external_data=False)
    apart = any(uses_external_data(tensor) for tensor in proto.graph.initializer)
    if apart and output.resolve().parent != model.path.resolve().parent:
        raise UsageError(
            "a copy of this file must lie beside it",
            f"{model.path.name} has its weights in other files of its folder",
            f"--annotate {model.path.parent / output.name}",
        )
    return model.path


def annotate_file(prepared: Prepared, plan: Plan, output: Path) -> Annotated:
    """Writes the copy; weights that lie in files beside it stay there.

    A node that became part of several operators says all of them, one that has none or an unknown one says nothing.
    Raises as :func:`check_annotatable` does.
    """
    path = check_annotatable(prepared.model, output)
    proto = onnx.load(path, load_external_data=False)
    lines = {line.operator: line for line in plan.operators}
    origins = operators_of_nodes(proto.graph, source_names(prepared.module))
    for node, operators in zip(proto.graph.node, origins, strict=True):
        _set(node.metadata_props, _node_facts([lines[operator] for operator in operators]))
    facts = {"device": plan.device, "predicted_ms": plan.predicted_ms, "measured_ms": plan.measured_ms}
    _set(proto.metadata_props, {name: _text(value) for name, value in facts.items() if value})
    if proto.ir_version < _WEIGHTS_APART:  # from then on a weight that is an input is one that callers may replace
        weights = {tensor.name for tensor in proto.graph.initializer}
        kept = [value for value in proto.graph.input if value.name not in weights]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
    proto.ir_version = max(proto.ir_version, _NODE_METADATA)
    output.write_bytes(proto.SerializeToString())
    return Annotated(sum(map(bool, origins)), len(origins))


def _node_facts(lines: Sequence[PlannedOperator]) -> dict[str, str]:
    facts = {name: [_text(value) for line in lines if (value := fact(line))] for name, fact in _FACTS.items()}
    facts["placement"] = list(dict.fromkeys(facts["placement"]))
    return {name: (" | " if name == "reason" else ", ").join(texts) for name, texts in facts.items() if texts}


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _set(properties: Any, facts: dict[str, str]) -> None:
    """In place of what an earlier plan said."""
    others = [entry for entry in properties if not entry.key.startswith(PREFIX)]
    del properties[:]
    properties.extend(others)
    properties.extend(onnx.StringStringEntryProto(key=PREFIX + name, value=text) for name, text in facts.items())
