"""ONNX's own tests as models with the values of their inputs, and the outputs that they must have.

Inputs that say how to compute (shapes, axes, k, weights) become initializers, as they are in the file of a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

DATA = Path(onnx.backend.test.__file__).parent / "data"
#: By operator, the first and the last (or -1: all that follow) of the inputs that a model's file holds.
PARAMETERS = {
    "AffineGrid": (1, 1), "BatchNormalization": (1, 4), "BlackmanWindow": (0, 0), "CenterCropPad": (1, 1),
    "Clip": (1, 2), "Col2Im": (1, 2), "Compress": (1, 1), "ConstantOfShape": (0, 0), "Conv": (1, 2),
    "ConvInteger": (1, 3), "ConvTranspose": (1, 2), "CumSum": (1, 1), "DFT": (1, 2), "DeformConv": (1, 1),
    "DequantizeLinear": (1, 2), "Dropout": (1, 2), "Expand": (1, 1), "GRU": (1, 4), "Gemm": (1, 2),
    "GroupNormalization": (1, 2), "HammingWindow": (0, 0), "HannWindow": (0, 0), "If": (0, 0),
    "InstanceNormalization": (1, 2), "LSTM": (1, 4), "LayerNormalization": (1, 2), "Loop": (0, 1),
    "MatMulInteger": (1, 3), "MaxUnpool": (2, 2), "MelWeightMatrix": (0, 4), "NonMaxSuppression": (2, 4),
    "OneHot": (1, 2), "PRelu": (1, 1), "Pad": (1, 3), "QLinearConv": (1, 8), "QLinearMatMul": (1, 7),
    "QuantizeLinear": (1, 2), "RNN": (1, 4), "RMSNormalization": (1, 1), "Range": (0, 2), "Reshape": (1, 1),
    "Resize": (1, 3), "RotaryEmbedding": (1, 3), "STFT": (1, 3), "SequenceAt": (1, 1), "SequenceErase": (1, 1),
    "SequenceInsert": (2, 2), "Slice": (1, 4), "Split": (1, 1), "SplitToSequence": (1, 1), "Squeeze": (1, 1),
    "Tile": (1, 1), "TopK": (1, 1), "Trilu": (1, 1), "Unsqueeze": (1, 1), "Upsample": (1, 1),
}  # fmt: skip
_EXPANDED = "_expanded"
#: Their answers wrap around at 8 bits where ONNX says that they saturate: they are compared with onnxruntime's.
WRAPPED = ("test_qlinearmatmul_2D_int8_float32", "test_qlinearmatmul_3D_int8_float32")

#: Tensors; sequences of them as lists; None for an optional without a value.
Value = np.ndarray | list[np.ndarray] | None


@dataclass(frozen=True)
class Case:
    """A test of ONNX; ``folder`` holds its model and values, or is the file of a light network."""

    name: str
    kind: str
    folder: Path
    rtol: float
    atol: float


@dataclass(frozen=True)
class Example:
    """A case's model, what it is given, and its outputs in order."""

    model: onnx.ModelProto
    inputs: dict[str, Value]
    outputs: list[Value]


def cases(kinds: tuple[str, ...]) -> Iterator[Case]:
    """The cases in the order of their names; operators written out as functions, which take long, come last."""
    for kind in kinds:
        if kind == "light":
            for path in sorted((DATA / "light").glob("*.onnx")):
                yield Case(path.stem, kind, path, 1e-3, 1e-5)
        else:
            for case in sorted(load_model_tests(kind=kind), key=lambda case: (_EXPANDED in case.name, case.name)):
                yield Case(case.name, kind, Path(case.model_dir), case.rtol, case.atol)


def example(case: Case) -> Example:
    """The case's first set of values, its parameters bound."""
    if case.kind == "light":
        model = onnx.load(case.folder)
        known = {tensor.name for tensor in model.graph.initializer}
        taken = [value for value in model.graph.input if value.name not in known]
        inputs = {v.name: Runner.generate_dummy_data(v, seed=0, name=case.name, random=False) for v in taken}
        paths = (Path(f"{case.folder.with_suffix('')}_output_{i}.pb") for i in range(len(model.graph.output)))
        return Example(model, inputs, [numpy_helper.to_array(onnx.load_tensor(path)) for path in paths])
    model = onnx.load(case.folder / "model.onnx")
    data = case.folder / "test_data_set_0"
    known = {tensor.name for tensor in model.graph.initializer}
    taken = [value for value in model.graph.input if value.name not in known]
    inputs = {v.name: _read(data / f"input_{i}.pb", v.type) for i, v in enumerate(taken)}
    outputs = [_read(data / f"output_{i}.pb", v.type) for i, v in enumerate(model.graph.output)]
    if case.name in WRAPPED:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs = session.run(None, inputs)
    for name in parameters(_signature(case, model)):
        if name in inputs:
            _bind(model, data / f"input_{list(inputs).index(name)}.pb", name)
    return Example(model, {v.name: inputs[v.name] for v in model.graph.input if v.name not in known}, outputs)


def parameters(model: onnx.ModelProto) -> set[str]:
    """The inputs of a model that its file would hold."""
    found = set()
    for node in model.graph.node:
        if node.op_type.startswith("Reduce"):
            first, last = 1, 1
        elif node.op_type in PARAMETERS:
            first, last = PARAMETERS[node.op_type]
        else:
            continue
        found |= set(node.input[first : last + 1]) - {""}
    return found


def _signature(case: Case, model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the operator itself: an operator written out as a function has the same inputs."""
    whole = case.folder.parent / case.name.partition(_EXPANDED)[0] / "model.onnx"
    return onnx.load(whole) if _EXPANDED in case.name and whole.is_file() else model


def _bind(model: onnx.ModelProto, path: Path, name: str) -> None:
    (value,) = (v for v in model.graph.input if v.name == name)
    if value.type.WhichOneof("value") != "tensor_type":
        return
    tensor = onnx.load_tensor(path)
    tensor.name = name
    model.graph.initializer.append(tensor)
    model.graph.input.remove(value)


def _read(path: Path, kind: onnx.TypeProto) -> Value:
    which = kind.WhichOneof("value")
    content = path.read_bytes()
    if which == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if which == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))
