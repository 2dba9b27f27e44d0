"""Computes what is constant in an ONNX graph, shapes included, by ONNX's own reference evaluator.

With static shapes most of what exporters write to compute shapes, axes and bounds is constant.  TVM's importer would compile a
kernel for each such node, and many of its converters want the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tvm_codl.frontend.onnx_types import Types, attributes_of, element_type, shape_of

#: Elements of one constant that is computed or read here, at most: weights are TVM's to fold.
MOST = 4096
#: Nodes of a branch's or a loop's body, and elements it works on, are few: a loop may run long.
_NUMBERS = frozenset(
    TensorProto.DataType.Value(name)
    for name in ("FLOAT", "FLOAT16", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL")
)  # fmt: skip
#: Their results are random, or they keep integers for what computes with integers.
_LEFT = frozenset((
    "Bernoulli", "DequantizeLinear", "DynamicQuantizeLinear", "Multinomial", "QuantizeLinear", "RandomNormal",
    "RandomNormalLike", "RandomUniform", "RandomUniformLike",
))  # fmt: skip

Constants = dict[str, np.ndarray]


def fold_constants(proto: onnx.ModelProto, types: Types) -> bool:
    """Changes ``proto``: nodes that compute constants become Constant nodes, and what then has no reader goes.

    ``types`` has those of its values.  An If whose condition is constant becomes its branch.  Whether anything changed.
    """
    known = small_constants(proto.graph)
    nodes: list[onnx.NodeProto] = []
    changed = False
    for place, node in enumerate(proto.graph.node):
        results = None if node.op_type == "Constant" else _results(node, known, types, proto)
        if results is not None:
            known.update(results)
            nodes.extend(constant_node(name, value) for name, value in results.items())
        elif node.op_type == "If" and node.input[0] in known:
            nodes.extend(_branch(node, bool(known[node.input[0]]), f"{node.output[0]}.{place}"))
        else:
            nodes.append(node)
            continue
        changed = True
    if changed:
        kept = _read(nodes, {value.name for value in proto.graph.output})
        del proto.graph.node[:]
        proto.graph.node.extend(kept)
    return changed


def constant_node(name: str, value: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


def small_constants(graph: onnx.GraphProto) -> Constants:
    """A graph's constants of numbers, those of at most :data:`MOST` elements."""
    known = {t.name: numpy_helper.to_array(t) for t in graph.initializer if _is_small(t)}
    for node in graph.node:
        if node.op_type != "Constant":
            continue
        (attribute,) = node.attribute
        number = helper.get_attribute_value(attribute)
        if attribute.name == "value" and _is_small(number):
            known[node.output[0]] = numpy_helper.to_array(number)
        elif attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
            known[node.output[0]] = np.array(number, np.int64 if "int" in attribute.name else np.float32)
    return known


def _is_small(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in _NUMBERS and int(np.prod(tensor.dims, dtype=np.int64)) <= MOST


def _results(node: onnx.NodeProto, known: Constants, types: Types, proto: onnx.ModelProto) -> Constants | None:
    """What a node computes by name; None where that is not constant, large, or no numbers."""
    if node.domain not in ("", "ai.onnx") or node.op_type in _LEFT or _stacks(node):
        return None
    if node.op_type in ("Shape", "Size") and (shape := shape_of(node.input[0], types)) is not None:
        attributes = attributes_of(node)
        part = shape[attributes.get("start", 0) : attributes.get("end", len(shape))]
        value = part if node.op_type == "Shape" else int(np.prod(shape, dtype=np.int64))
        return {node.output[0]: np.array(value, np.int64)}
    if node.op_type == "CastLike" and (to := element_type(node.input[1], types)) in _NUMBERS:
        node = helper.make_node("Cast", node.input[:1], node.output, to=to)
    taken = {*node.input, *(name for body in bodies(node) for name in outer_names(body))} - {""}
    if not taken <= known.keys() or any(n.op_type in _LEFT for body in bodies(node) for n in body.node):
        return None
    if any(_elements(name, types) > MOST for name in node.output if name):
        return None
    given = {name: known[name] for name in taken}
    if node.op_type == "Range":  # ONNX's own functions give it tensors of one element
        given = {name: value.reshape(()) if value.size == 1 else value for name, value in given.items()}
    values = _evaluated(node, given, proto)
    if not all(isinstance(v, np.ndarray) and v.dtype.kind in "biuf" and v.size <= MOST for v in values.values()):
        return None
    return values or None


def _stacks(node: onnx.NodeProto) -> bool:
    """Whether a loop stacks what its rounds give, which the reference evaluator does in another shape than ONNX says."""
    return node.op_type == "Scan" or (node.op_type == "Loop" and len(node.output) > len(node.input) - 2)


def _elements(name: str, types: Types) -> int:
    return int(np.prod(shape_of(name, types) or (), dtype=np.int64))


def _evaluated(node: onnx.NodeProto, given: Constants, proto: onnx.ModelProto) -> dict[str, Any]:
    from onnx.reference import ReferenceEvaluator

    taken = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given.items()
    ]
    made = [name for name in node.output if name]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in made]
    model = helper.make_model(helper.make_graph([node], "constant", taken, outputs), opset_imports=proto.opset_import)
    try:
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(model).run(None, given)
    except Exception:  # it raises what it likes; the importer then says what is wrong
        return {}
    # Numpy's scalars are no arrays.
    return {n: np.asarray(v) if isinstance(v, np.generic) else v for n, v in zip(made, values, strict=True)}


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs of a node's branches or of its loop, not those inside them."""
    yield from (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)


def outer_names(graph: onnx.GraphProto) -> set[str]:
    """The names that a branch or a loop's body takes from outside."""
    own = {value.name for value in (*graph.input, *graph.initializer)}
    own |= {name for node in graph.node for name in node.output}
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    read |= {name for node in graph.node for body in bodies(node) for name in outer_names(body)}
    return read - own - {""}


def _branch(node: onnx.NodeProto, taken: bool, prefix: str) -> list[onnx.NodeProto]:
    """The nodes of the branch that is taken, their own values renamed."""
    (body,) = (a.g for a in node.attribute if a.name == ("then_branch" if taken else "else_branch"))
    made = [constant_node(t.name, numpy_helper.to_array(t)) for t in body.initializer] + list(body.node)
    names = {name: f"{prefix}.{name}" for each in made for name in each.output if name}
    inner = [_renamed(each, names) for each in made]
    ends = zip(body.output, node.output, strict=True)
    return inner + [helper.make_node("Identity", [names.get(a.name, a.name)], [b]) for a, b in ends if b]


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [names.get(name, name) for name in node.input]
    made.output[:] = [names.get(name, name) for name in node.output]
    for body in bodies(made):
        nodes = [_renamed(each, names) for each in body.node]
        del body.node[:]
        body.node.extend(nodes)
        for value in body.output:
            value.name = names.get(value.name, value.name)
    return made


def _read(nodes: Iterable[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    """The nodes that something behind them reads."""
    kept = []
    for node in reversed(list(nodes)):
        if wanted & set(node.output):
            kept.append(node)
            wanted |= {*node.input, *(name for body in bodies(node) for name in outer_names(body))}
    return kept[::-1]
