"""A TFLite file as Relay, by TVM's importer; what that computes otherwise than TFLite is done or refused here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tflite
import tvm
from ai_edge_litert import schema_py_generated as schema
from tvm import relay
from tvm.relay.frontend.tflite import OperatorConverter, from_tflite

from tvm_codl.errors import CodlError, UserError
from tvm_codl.frontend.interpreter import tensor_shapes
from tvm_codl.frontend.shapes import fix_shapes
from tvm_codl.frontend.tflite_custom import without_custom
from tvm_codl.frontend.tflite_file import (
    CHECK,
    constant,
    dtype_of,
    operator_name,
    read_tflite,
    shape_of,
    tensor_name,
    write_tflite,
)
from tvm_codl.frontend.tflite_quantised import dequantised, unquantisable
from tvm_codl.relay.model import Shape
from tvm_codl.relay.pipeline import simplify
from tvm_codl.relay.quantised import Scheme, dequantise

#: Options that TVM's importer does not look at: by operator, the option and its only value that is right then.
_IGNORED: dict[str, tuple[str, float]] = {"SOFTMAX": ("beta", 1.0), "GATHER": ("batchDims", 0)}

Inputs = tuple[tuple[str, Shape, str], ...]
Convert = Callable[[Any], relay.Expr]


def import_tflite(
    path: Path, given: Mapping[str, Shape], outputs: Sequence[int] | None = None
) -> tuple[tvm.IRModule, Inputs, tuple[str, ...]]:
    """The simplified network at static shapes, its inputs (name, shape, type) and its outputs' names.

    ``outputs`` are tensors by number, in place of the file's own outputs.  Float16 weights become float32.  Raises
    :class:`UserError` as :func:`read_tflite` and :func:`fix_shapes` do, and with their names for operators that are sparse,
    whose weights alone are quantised, or that the importer does not know or computes otherwise.
    """
    model = without_custom(read_tflite(path))
    graph = model.subgraphs[0]
    if outputs is not None:
        graph.outputs = list(outputs)
    inputs = [graph.tensors[index] for index in graph.inputs]
    declared = {tensor_name(tensor): _dimensions(tensor) for tensor in inputs}
    if len(declared) < len(inputs) or "" in declared:
        raise UserError(
            f"{path.name} has inputs without names of their own",
            ", ".join(repr(tensor_name(tensor)) for tensor in inputs),
            "export the model with named inputs",
        )
    shapes = fix_shapes(declared, given, path)
    _refuse(model, path)
    store_float32(model)
    if any(shapes[tensor_name(tensor)] != shape_of(tensor) for tensor in inputs):
        for index, shape in tensor_shapes(write_tflite(model), shapes, path).items():
            graph.tensors[index].shape = list(shape)
    model = dequantised(model)
    graph = model.subgraphs[0]
    named = tuple((tensor_name(tensor), shape_of(tensor), dtype_of(tensor)) for tensor in inputs)
    try:
        return simplify(_relay(model)), named, tuple(tensor_name(graph.tensors[i]) for i in graph.outputs)
    except CodlError:
        raise
    except Exception as error:  # importer and passes raise assertions, key errors, value errors
        lines = str(error).strip().splitlines()
        raise UserError(
            f"{path.name} cannot be imported into Relay",
            f"{type(error).__name__}: {lines[-1] if lines else 'no message'}",
            CHECK.format(path),
        ) from error


def _dimensions(tensor: schema.TensorT) -> list[tuple[int | None, str]]:
    signature = shape_of(tensor) if tensor.shapeSignature is None else tensor.shapeSignature
    return [(int(size), str(size)) if size > 0 else (None, "?") for size in signature]


def _refuse(model: schema.ModelT, path: Path) -> None:
    """Raises :class:`UserError` with the names of all operators that are not supported."""
    graph = model.subgraphs[0]
    known = OperatorConverter(None, None, None).convert_map
    reasons: dict[str, str] = {}
    for operator in graph.operators:
        name = operator_name(model, operator)
        touched = [graph.tensors[index] for index in (*operator.inputs, *operator.outputs) if index >= 0]
        option, value = _IGNORED.get(name, ("", 0.0))
        if name == "DENSIFY" or any(tensor.sparsity is not None for tensor in touched):
            reasons[name] = "of sparse weights"
        elif why := unquantisable(model, operator):
            reasons[name] = why
        elif name not in known:
            reasons[name] = "not known"
        elif option and getattr(operator.builtinOptions, option) != value:
            reasons[name] = f"with {option} {getattr(operator.builtinOptions, option):g}"
    if reasons:
        listed = ", ".join(f"{name} ({why})" for name, why in sorted(reasons.items()))
        raise UserError(
            f"{path.name} uses operators that are not supported: {', '.join(sorted(reasons))}",
            f"{listed}; TVM {tvm.__version__}",
            "export the model with float32 or float16 weights or as full integer, dense, with TFLite's own operators",
        )


def store_float32(model: schema.ModelT) -> None:
    """Changes the model: each DEQUANTIZE of a float16 constant goes, and its output is a float32 constant."""
    graph = model.subgraphs[0]
    kept = []
    for operator in graph.operators:
        source = graph.tensors[operator.inputs[0]] if len(operator.inputs) else None
        if operator_name(model, operator) != "DEQUANTIZE" or source is None or dtype_of(source) != "float16":
            kept.append(operator)
            continue
        value, target = constant(model, source), graph.tensors[operator.outputs[0]]
        if value is None:  # computed: TVM takes every float16 for a constant
            raise UserError("DEQUANTIZE of a computed float16 tensor is not supported", tensor_name(source))
        model.buffers.append(schema.BufferT(np.ascontiguousarray(value, np.float32).reshape(-1).view(np.uint8)))
        target.buffer = len(model.buffers) - 1
    graph.operators = kept


class _Converter(OperatorConverter):
    """TVM's, where it computes as TFLite does; errors name the operator that they come from."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        own = {
            "DEQUANTIZE": self.convert_dequantize,
            "PRELU": self.convert_prelu,
            "TRANSPOSE_CONV": self.convert_transpose_conv,
        }
        known: dict[str, Convert] = {**vars(self)["convert_map"], **own}
        self.convert_map = {name: _naming(name, convert) for name, convert in known.items()}

    def convert_dequantize(self, op: Any) -> relay.Expr:
        """TVM's takes no constants, and scales along the last axis."""
        (source,) = self.get_input_tensors(op)
        how, x = source.tensor.Quantization(), self.get_tensor_expr(source)
        scale, zero = how.ScaleAsNumpy(), np.broadcast_to(how.ZeroPointAsNumpy(), how.ScaleLength())
        return dequantise(x, Scheme(scale, zero.astype(np.int32), how.QuantizedDimension()))

    def convert_prelu(self, op: Any) -> relay.Expr:
        """TVM's stretches the slopes over the whole picture, flat: nothing could split it."""
        data, slope = self.get_input_tensors(op)
        x, alpha = self.get_expr(data.tensor_idx), self.get_tensor_expr(slope)
        shape, rank = slope.tensor.ShapeAsNumpy().tolist(), data.tensor.ShapeLength()
        channels = data.tensor.Shape(rank - 1)
        if shape[-1] == channels == int(np.prod(shape)):
            return relay.nn.prelu(x, relay.reshape(alpha, [channels]), axis=rank - 1)
        return relay.subtract(relay.nn.relu(x), relay.multiply(alpha, relay.nn.relu(relay.negative(x))))

    def convert_transpose_conv(self, op: Any) -> relay.Expr:
        """TVM's leaves out the activation."""
        options, table = tflite.TransposeConvOptions(), op.BuiltinOptions()
        options.Init(table.Bytes, table.Pos)
        made = super().convert_transpose_conv(op)
        return self.convert_fused_activation_function(made, options.FusedActivationFunction())


def _naming(name: str, convert: Convert) -> Convert:
    def converted(op: Any) -> relay.Expr:
        try:
            return convert(op)
        except Exception as error:
            raise ValueError(f"{name}: {type(error).__name__} {str(error).strip()}") from error

    return converted


def _relay(model: schema.ModelT) -> tvm.IRModule:
    """The module as imported, its inputs in the file's order, its weights constants.

    TVM's importer knows tensors by their names, which a file may use twice: there they are numbers.
    """
    graph = model.subgraphs[0]
    names = [tensor_name(tensor) for tensor in graph.tensors]
    for index, tensor in enumerate(graph.tensors):
        tensor.name = f"tensor{index}".encode()
    logging.getLogger("tflite").setLevel(logging.ERROR)
    module, weights = from_tflite(tflite.Model.GetRootAs(write_tflite(model), 0), op_converter=_Converter)
    for tensor, name in zip(graph.tensors, names, strict=True):
        tensor.name = name.encode()
    main = relay.build_module.bind_params_by_name(module["main"], weights)
    found = {parameter.name_hint: parameter for parameter in main.params}
    new = {
        index: relay.var(names[index], shape=shape_of(graph.tensors[index]), dtype=dtype_of(graph.tensors[index]))
        for index in graph.inputs
    }
    bound = {found[f"tensor{index}"]: var for index, var in new.items() if f"tensor{index}" in found}
    module = tvm.IRModule.from_expr(relay.Function(list(new.values()), relay.bind(main.body, bound)))
    kind = relay.transform.InferType()(module)["main"].ret_type
    made = [(tuple(int(size) for size in field.shape), field.dtype) for field in getattr(kind, "fields", [kind])]
    for index, (shape, dtype) in zip(graph.outputs, made, strict=True):
        declared = (shape_of(graph.tensors[index]), dtype_of(graph.tensors[index]))
        if declared != (shape, dtype):
            raise ValueError(f"output {names[index]!r} is {dtype}{list(shape)}, the file says {declared}")
    return module
