"""LiteRT's interpreter: the answers of a TFLite file, and the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tvm_codl.errors import UserError
from tvm_codl.frontend.tflite_custom import without_custom
from tvm_codl.frontend.tflite_file import read_tflite, write_tflite
from tvm_codl.relay.model import Shape


def tflite_outputs(path: Path, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The file's outputs on ``inputs``, by LiteRT with XNNPACK on one CPU thread, in the file's order.

    LiteRT does not have MediaPipe's Convolution2DTransposeBias.  A network with it is given to LiteRT with its own
    TRANSPOSE_CONV in that place; all other networks as they are.
    """
    interpreter = invoked(path, inputs)
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def tflite_tensors(path: Path, inputs: Mapping[str, np.ndarray], numbers: Iterable[int]) -> list[np.ndarray]:
    """What the file's tensors of these numbers hold after a run, by LiteRT's own kernels: XNNPACK keeps no tensors."""
    without = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = invoked(path, inputs, experimental_op_resolver_type=without, experimental_preserve_all_tensors=True)
    return [interpreter.get_tensor(number) for number in numbers]


def invoked(path: Path, inputs: Mapping[str, np.ndarray], threads: int = 1, **options: Any) -> Interpreter:
    """LiteRT's interpreter that has run the file once on ``inputs``, and keeps them."""
    model = read_tflite(path)
    plain = without_custom(model)
    content = path.read_bytes() if plain is model else write_tflite(plain)
    interpreter = Interpreter(model_content=content, num_threads=threads, **options)
    _resize(interpreter, {name: value.shape for name, value in inputs.items()}, path)
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], inputs[detail["name"]])
    interpreter.invoke()
    return interpreter


def tensor_shapes(content: bytes, shapes: Mapping[str, Shape], path: Path) -> dict[int, Shape]:
    """The shape of each tensor by its number, where the inputs have ``shapes``."""
    without = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # these leave the tensors within them as they were
    interpreter = Interpreter(model_content=content, num_threads=1, experimental_op_resolver_type=without)
    _resize(interpreter, shapes, path)
    return {d["index"]: tuple(int(size) for size in d["shape"]) for d in interpreter.get_tensor_details()}


def _resize(interpreter: Interpreter, shapes: Mapping[str, Shape], path: Path) -> None:
    try:
        for detail in interpreter.get_input_details():
            if tuple(detail["shape"]) != tuple(shapes[detail["name"]]):
                interpreter.resize_tensor_input(detail["index"], list(shapes[detail["name"]]))
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        given = ", ".join(f"{name}: {list(shape)}" for name, shape in shapes.items())
        raise UserError(
            f"{path.name} does not work at these shapes", f"{given}; {error}", "give other shapes"
        ) from error
