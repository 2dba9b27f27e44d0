"""Where an imported network and its file part: every operator's output, the importer's beside the reference's."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import msgspec
import onnx
import onnxruntime

from tvm_codl.frontend.interpreter import tflite_tensors
from tvm_codl.frontend.load import import_onnx
from tvm_codl.frontend.onnx_file import read_onnx
from tvm_codl.frontend.reference import precise_session
from tvm_codl.frontend.tflite_file import is_tflite, operator_name, read_tflite, tensor_name
from tvm_codl.frontend.tflite_import import import_tflite
from tvm_codl.measure.answers import answer_errors
from tvm_codl.measure.host_outputs import Values, host_outputs
from tvm_codl.relay.model import LoadedModel, Shape
from tvm_codl.relay.quanta import quanta_of


class NodeError(msgspec.Struct, frozen=True):
    """How far a node's ``output`` is from the reference's, relative to its largest magnitude; infinite for another shape.

    ``node`` is the node's name, in a TFLite file its number.
    """

    node: str
    operator: str
    output: str
    max_rel_err: float


def node_errors(model: LoadedModel, inputs: Values) -> list[NodeError]:
    """The error of each node of the file, in its order, with every node's output kept.

    A node after one that is wrong is computed from wrong values.  Empty for a network that came from no file.
    """
    if model.path is None:
        return []
    shapes = {name: shape for name, shape, _ in model.inputs}
    return (_of_tflite if is_tflite(model.path) else _of_onnx)(model.path, shapes, inputs)


def _of_onnx(path: Path, shapes: Mapping[str, Shape], inputs: Values) -> list[NodeError]:
    proto = _all_outputs(path)
    with warnings.catch_warnings():  # the importer wants to know the types of outputs, which nothing uses
        warnings.simplefilter("ignore")
        module = import_onnx(_all_outputs(path), shapes, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    quanta = quanta_of(module)
    if not quanta:  # else precise sums are one of the optimisations
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = precise_session(proto.SerializeToString(), options)
    wanted = session.run(None, dict(inputs))
    values = host_outputs(module, inputs)
    errors = {
        output.name: answer_errors([got], [want], quanta[number : number + 1])[1]
        for number, (output, got, want) in enumerate(zip(proto.graph.output, values, wanted, strict=True))
    }
    return [
        NodeError(node.name, node.op_type, name, errors[name])
        for node in proto.graph.node
        for name in node.output
        if name in errors
    ]


def _all_outputs(path: Path) -> onnx.ModelProto:
    """The file's network with every value that a node computes as an output."""
    proto = read_onnx(path)
    names = [name for node in proto.graph.node if node.op_type != "Constant" for name in node.output if name]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return proto


def _of_tflite(path: Path, shapes: Mapping[str, Shape], inputs: Values) -> list[NodeError]:
    model = read_tflite(path)
    graph = model.subgraphs[0]
    nodes = [
        (str(place), operator_name(model, operator), int(number))
        for place, operator in enumerate(graph.operators)
        for number in operator.outputs
    ]
    nodes = [node for node in nodes if node[1] != "DEQUANTIZE"]  # of constants: part of reading the file
    numbers = [number for *_, number in nodes]
    ours = host_outputs(import_tflite(path, shapes, numbers)[0], inputs)
    wanted = tflite_tensors(path, inputs, numbers)
    return [
        NodeError(place, name, tensor_name(graph.tensors[number]), answer_errors([got], [want])[1])
        for (place, name, number), got, want in zip(nodes, ours, wanted, strict=True)
    ]
