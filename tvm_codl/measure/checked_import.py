"""Checked import: an imported network's answer, computed on this computer, beside the reference's.

It runs before anything is measured, and once for each file: what was right is remembered by content.
"""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime
import tvm
from tvm import relay
from tvm.contrib import graph_executor

import tvm_codl
import tvm_codl.kernels.register
from tvm_codl.build.pool import build_all
from tvm_codl.errors import CheckFailed, UserError
from tvm_codl.frontend.load import import_onnx
from tvm_codl.frontend.onnx_file import read_onnx
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.frontend.tflite_file import is_tflite
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.target import cpu_target
from tvm_codl.measure.answers import TOLERANCE, answer_errors
from tvm_codl.measure.context import Log
from tvm_codl.paths import cache_dir
from tvm_codl.relay.model import LoadedModel
from tvm_codl.relay.pipeline import CONFIG

Values = Mapping[str, np.ndarray]


class NodeError(msgspec.Struct, frozen=True):
    """How far a node's ``output`` is from the reference's, relative to its largest magnitude; infinite for another shape."""

    node: str
    operator: str
    output: str
    max_rel_err: float


def check_import(model: LoadedModel, inputs: Values | None = None, log: Log = lambda _: None) -> None:
    """Compares the network's answer with the reference's, on its sample inputs or on ``inputs``.

    Raises :class:`CheckFailed` where they differ, with the first node of the file whose output does, and
    :class:`UserError` where the network does not compile here.
    """
    values = inputs or model.sample_inputs()
    mark = cache_dir() / "checked" / _digest(model, inputs or {}) if model.path else None
    if mark and mark.exists():
        return
    log(f"checking the import of {model.name}")
    error = answer_errors(host_outputs(model.module, values), reference_outputs(model, values))[1]
    if not error <= TOLERANCE:
        raise CheckFailed(
            f"{model.name} is imported wrongly: its answer differs from the reference's by {error:.2e}",
            _parting(model, values),
            "export the model without that operator, or use --no-check",
        )
    if mark:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _parting(model: LoadedModel, values: Values) -> str:
    """Where the imported network and its file part, in words."""
    if not is_onnx(model):
        return "the operator is not known: only ONNX files are compared operator by operator"
    for node in node_errors(model, values):
        if not node.max_rel_err <= TOLERANCE:
            return f"{node.operator} {node.node!r} is the first whose output {node.output!r} differs, by {node.max_rel_err:.2e}"
    return "each operator by itself agrees: simplifying the network changed it"


def is_onnx(model: LoadedModel) -> bool:
    """Whether :func:`node_errors` knows the file."""
    return model.path is not None and not is_tflite(model.path)


def node_errors(model: LoadedModel, inputs: Values) -> list[NodeError]:
    """The error of each node of the file, in its order, with every node's output kept.

    A node after one that is wrong is computed from wrong values.
    """
    assert model.path is not None
    shapes = {name: shape for name, shape, _ in model.inputs}
    proto = _all_outputs(model.path)
    with warnings.catch_warnings():  # the importer wants to know the types of outputs, which nothing uses
        warnings.simplefilter("ignore")
        module = import_onnx(_all_outputs(model.path), shapes, model.path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, dict(inputs))
    ours = dict(
        zip([o.name for o in proto.graph.output], zip(host_outputs(module, inputs), wanted, strict=True), strict=True)
    )
    return [
        NodeError(node.name, node.op_type, name, answer_errors(*([value] for value in ours[name]))[1])
        for node in proto.graph.node
        for name in node.output
        if name in ours
    ]


def host_outputs(module: tvm.IRModule, inputs: Values) -> list[np.ndarray]:
    """What an imported module computes on this computer's CPU, built and run in a process of its own.

    Raises :class:`UserError` where it does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-codl-check-") as folder:

        def write(_: int) -> Path:
            with scheduled(()), tvm.transform.PassContext(opt_level=3, config=CONFIG):
                library = relay.build(module, cpu_target())
            executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
            executor.set_input(**inputs)
            executor.run()
            path = Path(folder) / "outputs.npz"
            np.savez(path, *(executor.get_output(i).numpy() for i in range(executor.get_num_outputs())))
            return path

        _, outcome = next(build_all(1, write))
        if outcome.path is None:
            raise UserError("the imported network does not compile here", outcome.error, "use --no-check")
        with np.load(outcome.path) as file:
            return [file[key] for key in file.files]


def _all_outputs(path: Path) -> onnx.ModelProto:
    """The file's network with every value that a node computes as an output."""
    proto = read_onnx(path)
    names = [name for node in proto.graph.node if node.op_type != "Constant" for name in node.output if name]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return proto


def _digest(model: LoadedModel, inputs: Values) -> str:
    """Of all that decides: the file, the shapes, the inputs given, and what imports it."""
    digest = hashlib.sha256(f"{tvm.__version__}|{model.inputs}".encode())
    assert model.path is not None
    digest.update(model.path.read_bytes())
    for name in sorted(inputs):
        digest.update(name.encode() + np.ascontiguousarray(inputs[name]).tobytes())
    root = Path(tvm_codl.__file__).parent
    sources: Sequence[Path] = sorted([*(root / "frontend").rglob("*.py"), *(root / "relay").rglob("*.py")])
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]
