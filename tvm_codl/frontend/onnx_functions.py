"""Writes operators that TVM's importer does not know, or computes otherwise, as the functions that ONNX defines them by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import onnx
from onnx import helper
from tvm.relay.frontend import onnx as importer

#: The importer takes them for operators of another domain, or leaves out one of their attributes.
OTHERWISE = frozenset({"Attention", "Gelu", "RotaryEmbedding"})
_OURS = ("", "ai.onnx")


@cache
def known_operators(opset: int) -> frozenset[str]:
    """The operators that TVM's importer knows in that operator set."""
    return frozenset(importer._get_convert_map(opset)) | {"Constant"}


def opset_of(proto: onnx.ModelProto) -> int:
    """The version of ONNX's own operators in a model."""
    return max((o.version for o in proto.opset_import if o.domain in _OURS), default=1)


def is_replaced(node: onnx.NodeProto, opset: int) -> bool:
    return node.domain in _OURS and (node.op_type in OTHERWISE or node.op_type not in known_operators(opset))


def expand_functions(proto: onnx.ModelProto, types: Mapping[str, onnx.TypeProto]) -> bool:
    """Changes ``proto``; ``types`` has those of its values.  Whether anything was replaced: new values have no types yet."""
    opset, replaced = opset_of(proto), False
    nodes: list[onnx.NodeProto] = []
    for index, node in enumerate(proto.graph.node):
        body = _function(node, opset, types) if is_replaced(node, opset) else None
        if body is None:
            nodes.append(node)
        else:
            replaced = True
            made = _inlined(node, body, f"{node.output[0]}.{node.op_type}{index}")
            if node.op_type == "Attention" and len(types[node.input[0]].tensor_type.shape.dim) == 4:
                _keep_axes(made)
            nodes.extend(made)
    if replaced:
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)
    return replaced


def _function(node: onnx.NodeProto, opset: int, types: Mapping[str, onnx.TypeProto]) -> onnx.FunctionProto | None:
    """The newest definition of an operator that the operator set can express; None without one."""
    if not onnx.defs.has(node.op_type):
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, opset)  # the stubs lack what follows
    versions = [v for v in schema.function_opset_versions if v <= opset]
    if versions:
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(versions)))
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions or any(name and name not in types for name in node.input):
        return None
    given = [(types[name] if name else onnx.TypeProto()).SerializeToString() for name in node.input]
    made = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), given)
    return onnx.FunctionProto.FromString(made) if made else None


def _inlined(call: onnx.NodeProto, body: onnx.FunctionProto, prefix: str) -> list[onnx.NodeProto]:
    names = {"": ""}
    names |= dict(zip(body.input, [*call.input, *[""] * len(body.input)], strict=False))
    names |= {formal: actual for formal, actual in zip(body.output, call.output, strict=False) if actual}
    attributes = {a.name: a for a in onnx.defs.get_schema(call.op_type).attributes.values() if a.default_value.name}
    values = {name: a.default_value for name, a in attributes.items()}
    values |= {a.name: a for a in body.attribute_proto}
    values |= {a.name: a for a in call.attribute}
    return [_renamed(node, names, values, f"{prefix}.{i}", prefix) for i, node in enumerate(body.node)]


def _keep_axes(nodes: list[onnx.NodeProto]) -> None:
    """ONNX's definition of Attention squeezes its result, which also takes away a batch of one."""
    for node in nodes:
        if node.op_type == "Squeeze" and len(node.input) == 1:
            node.op_type = "Identity"


def _renamed(
    node: onnx.NodeProto,
    names: dict[str, str],
    values: Mapping[str, onnx.AttributeProto],
    label: str,
    prefix: str,
) -> onnx.NodeProto:
    """A node of a function's body with the caller's names; ``names`` gains those of its outputs."""
    made = helper.make_node(
        node.op_type,
        [names.get(name, name) for name in node.input],
        [names.setdefault(name, f"{prefix}.{name}") for name in node.output],
        name=label,
        domain=node.domain,
    )
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in values:
                continue
            given = onnx.AttributeProto()
            given.CopyFrom(values[attribute.ref_attr_name])
            given.name = attribute.name
            made.attribute.append(given)
        else:
            made.attribute.append(attribute)
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner = made.attribute[-1].g
                nodes = [_renamed(each, names, values, f"{label}.{i}", prefix) for i, each in enumerate(inner.node)]
                del inner.node[:]
                inner.node.extend(nodes)
                for output in inner.output:
                    output.name = names.get(output.name, output.name)
    return made
