"""Reading an ONNX file, and the shapes and types of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from tvm_codl.errors import UserError
from tvm_codl.frontend.shapes import fix_shapes
from tvm_codl.relay.model import Shape

CHECK = "python -c 'import onnx, sys; onnx.checker.check_model(sys.argv[1])' {}"


def read_onnx(path: Path) -> onnx.ModelProto:
    """The file's content, weights included.  Raises :class:`UserError` if it is missing or no ONNX."""
    if not path.is_file():
        raise UserError(
            f"no such model file: {path}", "", "name an .onnx or .tflite file or a zoo model, e.g. zoo:resnet18"
        )
    again = CHECK.format(path)
    try:
        proto = onnx.load(str(path))
    except DecodeError as error:
        raise UserError(f"{path} is not an ONNX file", f"{type(error).__name__}: {error}", again) from error
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise UserError(f"{path} cannot be read", f"{type(error).__name__}: {error}", again) from error
    if not proto.graph.node or not proto.opset_import:
        raise UserError(f"{path} is not an ONNX file", "it holds no graph and no operator set", again)
    return proto


def input_shapes(proto: onnx.ModelProto, given: Mapping[str, Shape], path: Path) -> dict[str, Shape]:
    """The static shape of each input: the file's own, or the one ``given``; raises as :func:`fix_shapes`."""
    return fix_shapes({value.name: _dimensions(value) for value in real_inputs(proto)}, given, path)


def real_inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs without the initializers that older files list among them."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    return [value for value in proto.graph.input if value.name not in weights]


def input_dtype(value: onnx.ValueInfoProto) -> str:
    """Raises :class:`UserError` for an input that is no tensor."""
    if value.type.tensor_type.elem_type == onnx.TensorProto.UNDEFINED:
        kind = value.type.WhichOneof("value") or "nothing"
        raise UserError(
            f"the input {value.name!r} is no tensor",
            f"the file says that it is {kind}",
            "export the model with tensors as inputs",
        )
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)))


def output_names(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Raises :class:`UserError` that names the outputs which are no tensors."""
    others = {value.name: value.type.WhichOneof("value") for value in proto.graph.output}
    strange = [f"{name!r} is {kind}" for name, kind in others.items() if kind not in ("tensor_type", None)]
    if strange:
        raise UserError(
            f"{len(strange)} outputs are no tensors", "; ".join(strange), "export the model with tensors as outputs"
        )
    return tuple(others)


def _dimensions(value: onnx.ValueInfoProto) -> list[tuple[int | None, str]]:
    """For each axis its size, or None if dynamic, and its label."""
    dims: list[tuple[int | None, str]] = []
    for dim in value.type.tensor_type.shape.dim:
        static = dim.HasField("dim_value") and dim.dim_value > 0
        dims.append((dim.dim_value, str(dim.dim_value)) if static else (None, dim.dim_param or "?"))
    return dims
