"""``load_model``: an ONNX file, a TFLite file or a zoo name → the network as Relay in NHWC."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from pathlib import Path

import onnx
import tvm
from tvm import relay

from tvm_codl.errors import CodlError, UserError
from tvm_codl.frontend.interpreter import tflite_outputs
from tvm_codl.frontend.located import locate
from tvm_codl.frontend.onnx_constants import prepare_constants
from tvm_codl.frontend.onnx_file import CHECK, input_dtype, input_shapes, output_names, read_onnx, real_inputs
from tvm_codl.frontend.onnx_fold import fold_constants
from tvm_codl.frontend.onnx_functions import expand_functions, opset_of
from tvm_codl.frontend.onnx_import import from_onnx
from tvm_codl.frontend.onnx_origin import name_nodes
from tvm_codl.frontend.onnx_quantised import expand_quantised
from tvm_codl.frontend.onnx_repairs import repair_nodes
from tvm_codl.frontend.onnx_support import check_support
from tvm_codl.frontend.onnx_types import infer_types
from tvm_codl.frontend.reference import run_onnx
from tvm_codl.frontend.tflite_file import is_tflite
from tvm_codl.frontend.tflite_import import import_tflite
from tvm_codl.relay.model import LoadedModel, Shape
from tvm_codl.relay.pipeline import simplify

#: Functions are of functions, and a shape that is folded may make others constant: to this depth at most.
ROUNDS = 8


def load_model(source: str, shapes: Mapping[str, Shape] | None = None) -> LoadedModel:
    """The network in ``source``, the path of an ONNX or a TFLite file or ``zoo:NAME``, at static shapes.

    ``shapes`` fixes inputs of dynamic shape, in the file's layout.  The module is simplified for inference, has its
    weights bound as constants and works in NHWC; its inputs and outputs keep the file's names and layout.  Raises
    :class:`UserError` for a file that is neither or is damaged, an unknown zoo name, an operator that Relay's importer
    does not know or computes otherwise, and a dynamic shape that ``shapes`` does not fix.
    """
    found = locate(source, shapes or {})
    path, given, name, sample = found.path, found.shapes, found.name, found.sample
    if is_tflite(path):
        module, inputs, outputs = import_tflite(path, given)
        return LoadedModel(name, inputs, outputs, module, functools.partial(tflite_outputs, path), sample, path=path)
    proto = read_onnx(path)
    fixed = input_shapes(proto, given, path)
    dtypes = {value.name: input_dtype(value) for value in real_inputs(proto)}
    inputs = tuple((key, shape, dtypes[key]) for key, shape in fixed.items())
    outputs = output_names(proto)
    reference = functools.partial(run_onnx, path)
    return LoadedModel(name, inputs, outputs, import_onnx(proto, fixed, path), reference, sample, path=path)


def import_onnx(proto: onnx.ModelProto, shapes: Mapping[str, Shape], path: Path) -> tvm.IRModule:
    """A network with inputs of these shapes as Relay, simplified; ``path`` is for messages.  Changes ``proto``.

    Raises :class:`UserError` as :func:`load_model` does.
    """
    logging.getLogger("from_onnx").setLevel(logging.ERROR)
    try:
        name_nodes(proto.graph)
        types = infer_types(proto, shapes)
        if expand_quantised(proto, types):
            types = infer_types(proto, shapes)
        for _ in range(ROUNDS):
            expanded, folded = expand_functions(proto, types), fold_constants(proto, types)
            if not (expanded or folded):
                break
            types = infer_types(proto, shapes)
        repair_nodes(proto, types)
        check_support(proto, types, path)
        prepare_constants(proto, types)
        module, weights = from_onnx(proto, shapes, opset_of(proto))
        module["main"] = relay.build_module.bind_params_by_name(module["main"], weights)
        return simplify(module)
    except CodlError:
        raise
    except tvm.error.OpNotImplemented as error:
        unknown = str(error).rsplit(":", 1)[-1].strip()
        raise UserError(
            f"{path.name} uses operators that Relay's ONNX importer does not know: {unknown}",
            f"operator set {max(o.version for o in proto.opset_import)}, TVM {tvm.__version__}",
            "export the model with other operators, e.g. by onnxsim or a lower opset_version",
        ) from error
    except Exception as error:  # importer and passes raise assertions, key errors, value errors
        lines = str(error).strip().splitlines()
        raise UserError(
            f"{path.name} cannot be imported into Relay",
            f"{type(error).__name__}: {lines[-1] if lines else 'no message'}",
            CHECK.format(path),
        ) from error
